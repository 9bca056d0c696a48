"""chord beside what else one can install: the same keys, values and client loop for all, side by side in one run.

    python -m benchmarks.others [--systems chord,kademlia,…] [--nodes 8,16,64] [--ops N] [--seconds S] [--rounds N]

    loop.py        the client loop, and percentiles; standard library only, on Trio or asyncio
    program.py     a client or a node as a program of its own: JSON lines on standard input and output
    processes.py   the processes of a ring: start, pause, weigh, kill
    install.py     each system in an environment of its own under out/others
    system.py      what the runner must know of a system
    chord_ring.py  kademlia.py  libp2p.py  opendht.py  redis.py  etcd.py      the systems
    turns.py       who measures when
    table.py       rows, bars, Markdown, the picture
"""
