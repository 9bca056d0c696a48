"""Order: processes deliver the same messages in the same order, or at least learn all of them."""
