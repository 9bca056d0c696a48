"""The clients: blocking, and for Trio."""
