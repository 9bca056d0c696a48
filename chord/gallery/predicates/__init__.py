"""Global predicates: whether a property of the whole system holds on a consistent cut."""
