"""Connections between nodes, and the failure detector."""
