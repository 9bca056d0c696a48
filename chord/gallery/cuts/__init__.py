"""Consistent cuts: a state of all processes that some run could have had at one moment."""
