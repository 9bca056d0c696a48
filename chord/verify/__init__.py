"""What must hold: invariants of a ring, and histories of operations."""
