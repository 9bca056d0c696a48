"""The store of one node: versions, Merkle trees, and the database file."""
