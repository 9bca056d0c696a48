"""Replicated records: coordinator, replicas, anti-entropy, transfer."""
