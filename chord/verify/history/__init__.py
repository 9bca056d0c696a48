"""Histories of client operations, and checkers of their answers.

- `format`: an operation, and the JSON line that holds it
- `recorder`: writes the history of a run as it happens
- `register`: types that the checkers share
- `graph`: the happens-before graph, in which a cycle is a violation
- `search`: the search for one order of operations that explains every answer
- `shrink`: reduces a violation to a few operations
- `acknowledged`: the weaker promise of an eventually consistent store
- `check`: runs the checkers over a whole history, key by key

Linearizability is checked per key, for a register. It means that every operation seems to happen at one instant between
its call and its answer. The property is local: a history is linearizable if and only if the history of each key is. It
says nothing about transactions over several keys.
"""
