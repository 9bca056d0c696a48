"""The clients: blocking, for Trio and for asyncio."""
