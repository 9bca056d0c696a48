"""Histories: what clients asked of a store and what they were told, and whether one store could have said all that.

    format          an operation, and the JSON line that holds it
    recorder        writes the history of a run as it happens
    register        what the checkers of the register model share: what an operation saw, and how a verdict is told
    graph           the happens-before graph: a cycle is a violation
    search          the search for one order that explains every answer
    shrink          the few operations that already cannot be explained
    acknowledged    what an eventually consistent store promises, which is less
    check           all of it over a whole history, key by key

Linearizability is claimed per key, for a register: each key on its own behaves as if every operation happened at one
instant between its call and its answer. That is local (a history is linearizable exactly where each key's is), but it
says nothing about transactions over several keys.
"""
