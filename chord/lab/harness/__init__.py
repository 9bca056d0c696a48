"""The parts that all experiments share: runs, tables, plots, reports.

- `experiment`: settings, cells (measurements under one setting) and tables; running the cells.
- `statistics`: means with errors, percentiles, evenness of loads.
- `files`: files written atomically.
- `report`: CSV, JSON and Markdown.
- `plot`: SVG and PNG.
"""
