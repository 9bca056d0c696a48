"""Compare sharding schemes, model large rings, repeat the papers' experiments.

- `placement`: the interface of all schemes.
- `hashing`: hashes of keys, independent hashes made from one hash, and generators of keys.
- `schemes/`: one family of schemes per file; `SCHEMES` lists them by name.
- `bigring`: models of rings of a million nodes. All lookups run at once, also after many nodes died.
- `theory`: formulas that measurements are compared with.
- `numbers`: the statistics for these comparisons.
- `experiments/`: one experiment per file, grouped by the command that runs it.
- `papers/`: the figures of the papers, measured with the node's real code and with a NumPy model.
- `harness/`: the parts that all experiments share. They run measurements and write tables, plots and reports.
- `report`: one page on all results.

The schemes and the large rings need NumPy and xxhash. In a checkout, `pip install '.[lab]'` installs both. Only the lab
imports them.
"""
