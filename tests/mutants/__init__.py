"""Planted bugs. A check that never failed proves nothing, so each bug must be caught within its number of seeds.

- mutant.py: a planted bug as an edit of a few words of the source
- bugs_pointers.py, bugs_arcs.py, bugs_restarts.py, bugs_data.py, bugs_commits.py, bugs_oracle.py: the bugs
- scenes_pointers.py, scenes_arcs.py, scenes_restarts.py, scenes_data.py, scenes_commits.py: their scenarios
- play.py: the small ring of a scenario
- run.py: a hunt of all bugs on all cores, and the table (`python -m tests.mutants`)
"""
