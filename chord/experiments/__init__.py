"""Experiments as such, those of the simulator and those of the lab.

    experiment    settings, cells, tables; how cells are run
    pool          processes to run them in
    report, plot  CSV, JSON, Markdown, SVG and PNG
"""
