"""The aggregator of the dashboard: the single process that polls the nodes of a ring."""
