"""The protocol without a network: steps on lists of pointers, and what they can lead to.

original.py      the published protocol, as a model, for what it gets wrong; ours by the same steps
every_state.py   every state that a handful of vnodes can get into by the rules of `RingState`
"""
