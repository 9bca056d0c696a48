"""Models of the protocol without a network: steps on lists of pointers, and stores.

- original.py: the published protocol with its faults, and ours by the same steps
- every_state.py: every state that a few vnodes can reach by the rules of `RingState`
- absence.py: stores that are cut off, wiped, reaped and trimmed in any order
"""
