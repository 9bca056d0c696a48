"""Bugs on purpose. A check that never failed proves nothing: each of these must be caught within its number of seeds.

mutant.py            what a planted bug is: a few words of the package's source, replaced
bugs_pointers.py     mistakes with lists and predecessors     scenes_pointers.py   where they show
bugs_arcs.py         mistakes about who answers for what      scenes_arcs.py
bugs_restarts.py     mistakes about disks and second lives    scenes_restarts.py
bugs_data.py         mistakes with replicas and versions      scenes_data.py
play.py              the small world a scene is played in
run.py               all bugs on all cores, and the table (`python -m tests.mutants`)
"""
