"""The gallery: one readable file for each algorithm of the exam notes, run, searched and drawn.

`chord.cli.gallery` is its command. `entry` says how to write an entry, and `index` names all of them.
"""
