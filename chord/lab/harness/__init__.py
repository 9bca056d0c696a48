"""Experiments as such, those of the simulator and those of the lab.

    experiment    settings, cells, tables; how cells are run
    published     figures of the papers that several are held against
    pool          processes to run them in
    files         whole or not at all
    report, plot  CSV, JSON, Markdown, SVG and PNG
"""
