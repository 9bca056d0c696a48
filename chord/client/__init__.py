"""The clients: blocking, and on Trio."""
