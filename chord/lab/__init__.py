"""The lab: every way to place a key, side by side, and rings too large to run.

    placement    the interface of all schemes
    hashing      keys to 64-bit hashes, hashes to independent ones; generators of keys
    schemes/     one scheme a file; `SCHEMES` has them all by name

Built on NumPy and xxhash, which come with `pip install 'chord[lab]'`; nothing outside the lab imports them.
"""
