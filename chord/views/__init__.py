"""The JSON shapes that users see.

Each shape is one function here and one schema in `schemas/`. A function takes typed values and returns a dict that
`json` can write. The command line prints these dicts. Modules:

- `common`: the parts of other shapes: a vnode, a key, a value, an error.
- `ring`: the ring, its members and fingers.
- `nodes`: the status of all nodes, ready lines, answers of commands on one node.
- `records`: reads, writes, loads, backups, restores, the quarantine.
- `trace`: lookups, and the replicas of an operation.
- `transfers`: transfers of records, with their rates.
- `check`: the verdict on a ring.
- `history`: the report on a recorded history.
- `plan`: the effects of a join or a leave.
- `bench`: measurements of a ring.
- `experiments`: seeds, events and tables of the simulator and the lab.

Every id is a decimal string, with its hexadecimal form beside it under `…_hex`. A vnode is always {"id", "id_hex",
"node", "address"}.
"""
