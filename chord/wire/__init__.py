"""What travels: messages, their encoding, and the first frame."""
