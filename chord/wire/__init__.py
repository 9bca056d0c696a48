"""The wire protocol: messages, their encoding, and the first frame."""
