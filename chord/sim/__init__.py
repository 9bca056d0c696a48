"""The simulator: the same node by the thousand, on virtual time, with faults drawn from a seed.

    messages    the network at message level: calls without streams or codec, for scale
"""
