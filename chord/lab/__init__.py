"""The lab: every way to place a key, side by side, and rings too large to run.

    placement    the interface of all schemes
    hashing      keys to 64-bit hashes, hashes to independent ones; generators of keys
    schemes/     one scheme a file; `SCHEMES` has them all by name
    bigring      rings of a million nodes, all look-ups at once; failing: with a share of the nodes dead
    partitions   Dynamo's three ways to cut a ring
    theory       laws that measurements are held against; numbers: the statistics that hold them
    experiments/ what is measured, one experiment a file, by the command that runs it
    report       one page on all of it; clock: how long something takes

Built on NumPy and xxhash, which come with `pip install '.[lab]'` in a checkout; nothing outside the lab imports them.
"""
