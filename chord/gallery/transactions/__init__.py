"""Transactions: all or nothing, one after another, and the same outcome everywhere."""
