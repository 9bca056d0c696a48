"""Sharding schemes side by side, large model rings, and the papers' experiments.

- `placement`: the interface of all schemes.
- `hashing`: hashes of keys, independent hashes of one hash, generators of keys.
- `schemes/`: one family of schemes per file; `SCHEMES` lists them by name.
- `bigring`: rings of a million nodes, all look-ups at once, also among dead nodes.
- `theory`: formulas that measurements are compared with.
- `numbers`: the statistics for these comparisons.
- `experiments/`: one experiment per file, grouped by command.
- `papers/`: the figures of the papers, by the real node on virtual time and by a model.
- `harness/`: experiments in general: cells, tables, plots, reports.
- `report`: one page on all results.

The schemes and the large rings need NumPy and xxhash. In a checkout, `pip install '.[lab]'` installs both.
Only the lab imports them.
"""
