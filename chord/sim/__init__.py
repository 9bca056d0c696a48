"""The simulator: real nodes by the thousand on virtual time, with seeded faults.

    plan: the values that a seed draws: nodes, network, faults, clients
    run: one seed: faults at any moment, then calm; the verdict
    nemesis: events of a run: joins, leaves, and the faults of the plan
    hardships: events of a run with a theme: long and hard times of one kind
    fault_schedule: the fault schedule: deaths and returns within the failure assumption of the proof
    workload: the workload: clients that write and read
    habits: batches, large values, expiring values and scans of these clients
    oracle: judges every answer that the clients get
    key_model: the key model: all writes and versions of one key, and their consequences
    loss_accounting: loss accounting: puts, drops and lost disks, and which of them lost a write
    inventory: the inventory of copies: stores of living nodes, and disks of dead ones
    splits: the splits of the network, until their parts have merged
    backups: consistent backups during a run, with clients of their own
    consistent: checks that a consistent backup contains the causes of everything in it
    copies: checks that copies are on the right nodes, and replicas are equal
    observer: the observer: checks the ring after pointer changes
    situations: situations that a large swarm must meet
    swarm: many seeds on all cores, and the counts that must not be zero
    replay: one seed again, as lines and as an event log
    pool: worker processes

    cluster: machines with a disk and a wall clock, and real nodes on them
    prebuilt: an Ideal ring at once, for thousands of nodes
    messages: the network at message level: calls without streams or codec, for scale
    ticket: a call in progress on that network
    lateness: requests that arrive late, or twice, or get no answer
    disk: a disk that crashes, fills up, fails, hangs and rots
    image: the database on such a disk
    stores: the store that users run, and the identity, on such a disk
    watched: a store in memory that reports its changes to the workload

The published experiments are in `chord.lab.papers`. The network of frames over streams, virtual time and rings in
memory are in `chord.testing`. The commands are in chord/cli/sim.py.
"""
