"""The simulator: the same node by the thousand, on virtual time, with faults drawn from a seed.

    plan       what a seed draws: nodes, network, faults, clients
    life       one seed's run: everything at will, then calm; what becomes of it
    nemesis    what happens to a ring: joins, leaves, and the faults of the plan
    deaths     who is killed, who comes back, and who may die: the failure assumption of the proof
    ledger     clients that write and read
    oracle     judges every answer they get
    story      one key: every write and every version of it, and what follows from these
    losses     what happens to copies: put, dropped, gone with their nodes; who is to blame
    truth      who has what: the stores of the living, and the disks of the dead
    copies     whether all is where it is to be, and all replicas are equal
    watch      checks the ring after every change of a pointer
    swarm      many seeds on all cores, and the names of what none may leave out
    replay     one seed again, as lines and as an event log

    cluster    machines with a disk and a wall clock, and real nodes on them
    placing    an Ideal ring in a moment, for thousands of nodes
    messages   the network at message level: calls without streams or codec, for scale
    disk       a disk that crashes, fills up, fails, hangs and rots
    image      the database on such a disk
    stores     the store that users run on a twin of its database, and the identity, on such a disk
    watched    records in memory, of whose changes the ledger is told

    paper/     the published experiments, measured beside what was published

The network of frames over streams, virtual time and rings in memory are `chord.testing`. The
commands are chord/cli/sim.py; nothing else imports this package.
"""
