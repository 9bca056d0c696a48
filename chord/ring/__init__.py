"""The ring: pointers, ownership, lookups and their repair."""
