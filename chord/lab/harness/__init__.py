"""Experiments in general, used by the paper reproductions and by the lab.

- `experiment`: settings, cells and tables; running the cells.
- `published`: published figures that several experiments are compared with.
- `files`: files written atomically.
- `report`: CSV, JSON and Markdown.
- `plot`: SVG and PNG.
"""
