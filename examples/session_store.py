"""A store of expiring sessions, shared by all instances of a web service.

Start a ring with `chord up -n 8`. Then run `python examples/session_store.py 127.0.0.1:9000` in another terminal.
"""

from __future__ import annotations

import json
import secrets
import sys
import time

import chord
from chord.errors import NotFound


class Sessions:
    """Sessions of users. Each expires a while after its last visit."""

    def __init__(self, client: chord.Client, ttl_s: float) -> None:
        self.client, self.ttl_s = client, ttl_s

    def open(self, user: str) -> str:
        token = secrets.token_urlsafe(16)
        self._save(token, {"user": user, "visits": 0})
        return token

    def visit(self, token: str) -> dict[str, object] | None:
        """Count a visit and extend the session. Returns None if the session has expired."""
        try:
            # If two visits are concurrent, the later one is enough: losing a visit does no harm here.
            session = json.loads(self.client.get(f"session:{token}", resolve=chord.last_writer_wins).value)
        except NotFound:
            return None
        session["visits"] += 1
        self._save(token, session)
        return dict(session)

    def close(self, token: str) -> None:
        self.client.delete(f"session:{token}")

    def _save(self, token: str, session: dict[str, object]) -> None:
        self.client.put(f"session:{token}", json.dumps(session), ttl_s=self.ttl_s)


def main(address: str, ttl_s: str = "1.0") -> None:
    """Open a session, visit it, and let it expire."""
    with chord.connect(address) as client:
        sessions = Sessions(client, float(ttl_s))
        token = sessions.open("ada")
        print("first visit:", sessions.visit(token))
        print("second visit:", sessions.visit(token))
        time.sleep(float(ttl_s) + 0.1)
        print("after a pause:", sessions.visit(token))


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["127.0.0.1:9000"]))
