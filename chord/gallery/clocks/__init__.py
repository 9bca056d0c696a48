"""Clocks: numbers for events that reflect which event happened before which."""
