"""A session with a ring from ordinary blocking code: no Trio, no threads.

    chord up -n 8                                        in another terminal
    python examples/blocking_session.py 127.0.0.1:9000
"""

from __future__ import annotations

import sys

import chord
from chord.errors import NotFound


def main(address: str) -> None:
    """Write, read, settle a conflict, and see how a lookup travels."""
    with chord.connect(address, timeout_s=5.0) as ring:
        ring.put("user:42", "Ada")
        print("user:42 is", ring.get("user:42").value.decode())

        # Two writers that do not know of one another: nothing is lost, the reader gets both values …
        ring.put("user:42", "Grace", blind=True)
        found = ring.get("user:42")
        print("written at the same time:", sorted(value.decode() for value in found.siblings))

        # … and settles them by writing under the context of what it read.
        ring.put("user:42", "Ada and Grace", context=found.context)
        print("settled:", ring.get("user:42").value.decode())

        trace = ring.lookup("user:42")
        path = [*(hop.contact.address for hop in trace.hops), trace.owner.address]
        print("the way to its owner:", " → ".join(path))

        failures = ring.put_many((f"word:{i}", str(i)) for i in range(1000))
        words = [pair.key for pair in ring.scan() if pair.key.startswith(b"word:")]
        print(len(words), "words stored,", len(failures), "failures")

        ring.delete("user:42")
        try:
            ring.get("user:42")
        except NotFound:
            print("user:42 is gone, for sure")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["127.0.0.1:9000"]))
