"""Self-stabilization: algorithms that return to a legal state from any state."""
