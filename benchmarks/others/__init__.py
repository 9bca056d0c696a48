"""Compare chord with other systems: the same keys, values and client loop.

    python -m benchmarks.others [--systems chord,kademlia,…] [--nodes 8,16,64] [--ops N] [--seconds S] [--rounds N]

The rings of all systems take turns in one run.

- loop.py: the client loop and percentiles; standard library only, on Trio or asyncio
- program.py: a client or a node as a program with JSON lines on standard input and output
- processes.py: the processes of a ring: start, pause, measure, kill
- install.py: each system in its own environment under out/others
- system.py: the description of a system for the runner, which measures it
- chord_ring.py, kademlia.py, libp2p.py, opendht.py, redis.py, etcd.py: the systems
- turns.py: the turns of the rings
- table.py, plot.py: rows, bars (pass criteria), Markdown, the picture
"""
