"""The simulator: the same node by the thousand, on virtual time, with faults drawn from a seed.

    plan       what a seed draws: nodes, network, faults, clients
    life       one seed's run: everything at will, then calm; what becomes of it
    nemesis    what happens to a ring: joins, leaves, and the faults of the plan
    deaths     who is killed, who comes back, and who may die: the failure assumption of the proof
    ledger     clients that write and read, and remember what they were told
    losses     what happens to copies: put, dropped, gone with their nodes; who is to blame
    watch      checks the ring after every change of a pointer
    swarm      many seeds on all cores, and the names of what none may leave out
    replay     one seed again, as lines and as an event log
    pool       the processes of swarm and papers

    cluster    machines with a disk and a wall clock, and real nodes on them
    placing    an Ideal ring in a moment, for thousands of nodes
    messages   the network at message level: calls without streams or codec, for scale
    disk       a disk that keeps what is written and what is durable apart
    files      the files on such a disk
    durable    records and identity on such a disk, in a log (record_log)

    paper/     the published experiments, measured beside what was published

The network of frames over streams, virtual time and rings in memory are `chord.testing`. The
commands are chord/cli/sim.py; nothing else imports this package.
"""
