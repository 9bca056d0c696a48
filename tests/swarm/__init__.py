"""Random schedules on rings of real nodes in memory, checked after every step; and bugs planted to prove the checks.

watch.py      the observer: invariants after every transition, counts
ledger.py     clients that remember what was acknowledged, and what was lost with a dead node
schedule.py   one seed's joins, leaves, crashes, stalls
many.py       many seeds on all cores, and the table of what was taken (`python -m tests.swarm`)
planted.py    named bugs, each with the scenario that must catch it
scenarios.py  small worlds for bugs that need a race
original.py   the published protocol, as a model, for what it gets wrong
"""
