"""A port that a test holds is exclusive, refuses connections, and can be listened at."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from tests.support.ports import HOST, Ports


def is_refused(port: int) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection((HOST, port)):
        return False
    return True


def bind(port: int, *, reuse: bool) -> socket.socket:
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    try:
        taken.bind((HOST, port))
    except OSError:
        taken.close()
        raise
    return taken


def test_held_port_refuses_dials_and_is_not_reused() -> None:
    with Ports() as ports:
        port = ports.one()
        assert is_refused(port)
        with pytest.raises(OSError):
            bind(port, reuse=False)
        others = [bind(0, reuse=True) for _ in range(200)]
        assert port not in [other.getsockname()[1] for other in others]
        for other in others:
            other.close()
    bind(port, reuse=False).close()  # let go of with the block


def test_held_port_is_held_by_one_test(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.row(4)
    with Ports() as others:  # both begin to look at the same place
        other = others.row(4)
        assert other + 4 <= first or first + 4 <= other
    monkeypatch.setattr("tests.support.ports.os.getpid", lambda: 119)  # at the end of the range
    assert 20_000 <= ports.row(150) < 31_851


def test_held_port_can_be_listened_at_repeatedly(ports: Ports) -> None:
    port = ports.one()
    for _ in range(3):
        with socket.create_server((HOST, port)) as server, socket.create_connection((HOST, port)):
            accepted, _ = server.accept()
            accepted.close()
        assert is_refused(port)


def test_planted_port_that_is_closed_can_be_taken() -> None:
    """If a test only closes the port, another test can take it."""
    with socket.create_server((HOST, 0)) as probe:
        port = probe.getsockname()[1]
    bind(port, reuse=False).close()
