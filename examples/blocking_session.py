"""A session with a ring from ordinary blocking code: no Trio, no threads.

Start a ring with `chord up -n 8`. Then run `python examples/blocking_session.py 127.0.0.1:9000` in another terminal.
"""

from __future__ import annotations

import sys

import chord
from chord.errors import NotFound


def main(address: str) -> None:
    """Write, read, resolve a conflict, and show the path of a lookup."""
    with chord.connect(address, timeout_s=5.0) as client:
        client.put("user:42", "Ada")
        print("user:42 is", client.get("user:42").value.decode())

        # Two concurrent writers: no value is lost, and the reader gets both.
        client.put("user:42", "Grace", no_context=True)
        found = client.get("user:42")
        print("written at the same time:", sorted(value.decode() for value in found.siblings))

        # The reader resolves them: it writes under the context of its read.
        client.put("user:42", "Ada and Grace", context=found.context)
        print("settled:", client.get("user:42").value.decode())

        trace = client.lookup("user:42")
        path = [*(hop.contact.address for hop in trace.hops), trace.owner.address]
        print("the way to its owner:", " → ".join(path))

        result = client.put_many((f"word:{i}", str(i)) for i in range(1000))
        words = [pair.key for pair in client.scan() if pair.key.startswith(b"word:")]
        print(len(words), "words stored,", len(result.errors), "failures")

        client.delete("user:42")
        try:
            client.get("user:42")
        except NotFound:
            print("user:42 is gone, for sure")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["127.0.0.1:9000"]))
