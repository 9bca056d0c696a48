"""Connections between nodes, and the judgement whether a peer is alive."""
