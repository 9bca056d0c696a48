"""`chord kill` on nodes that do not answer, and the search for the process at an address."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from chord.cli import control
from chord.cli.output import Failure
from chord.cli.processes import listener_at, lists_listeners
from chord.errors import PeerUnreachable
from tests.support.real_rings import Running, is_alive, ring_of
from tests.support.schemas import check_shape


def wait_until_dead(ring: Running, name: str) -> None:
    """Wait until the ring counts a node as dead."""
    while not any(
        peer["node"] == name and peer["state"] == "dead" for peer in ring("members", "--json").json["members"]
    ):
        time.sleep(0.1)


@pytest.mark.slow
def test_stopped_node_gets_signals_by_its_name() -> None:
    with ring_of(3) as ring:
        n2 = ring.nodes[2]
        stopped = ring("kill", "n2", "--signal", "STOP")
        assert (stopped.code, stopped.out) == (0, f"sent SIGSTOP to n2 {n2['address']} (process {n2['pid']})\n")
        wait_until_dead(ring, "n2")
        goes_on = ring("kill", "n2", "--signal", "CONT", "--json")
        assert goes_on.code == 0, goes_on.err
        check_shape("kill", goes_on.json)
        assert goes_on.json == {
            "node": "n2", "address": n2["address"], "pid": n2["pid"], "signal": signal.SIGCONT
        }  # fmt: skip
        assert ring.check()["ok"]
        assert [ring("kill", "n2", "--signal", name).code for name in ("STOP", "CONT", "STOP")] == [0, 0, 0]
        assert ring("kill", n2["address"], "--signal", "9").code == 0
        while is_alive(n2["pid"]):
            time.sleep(0.05)
        gone = ring("kill", "n2", "--signal", "CONT")
        assert (gone.code, len(gone.err.splitlines())) == (2, 1)
        assert f"n2 at {n2['address']} does not answer, and no process of yours listens there" in gone.err
        assert "It may have ended; if it runs as another user, look up its process id" in gone.err


@pytest.mark.parametrize(
    ("host", "asked"),
    [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]")],
)
def test_listener_is_found_by_its_address(host: str, asked: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            pytest.skip(f"this machine has no {host}")
        port = listener.getsockname()[1]
        assert listener_at(f"{asked}:{port}") is None, "it does not listen yet"
        listener.listen()
        assert listener_at(f"{asked}:{port}") == os.getpid()
        assert listener_at(f"127.0.0.9:{port}") == (os.getpid() if host == "0.0.0.0" else None)
    assert listener_at(f"{asked}:{port}") is None


def fake_proc(directory: Path, tables: dict[str, list[tuple[str, int]]], files: dict[int, list[int]]) -> Path:
    """Write a `/proc` with listening sockets, (address, inode) by table, and with sockets by process id."""
    (directory / "net").mkdir(parents=True)
    for name, sockets in tables.items():
        lines = [f"0: {local} 0:0 0A 0:0 0:0 0 1000 0 {inode} 1" for local, inode in sockets]
        (directory / "net" / name).write_text("\n".join(["head", *lines]))
    for pid, inodes in files.items():
        (directory / str(pid) / "fd").mkdir(parents=True)
        for number, inode in enumerate(inodes):
            (directory / str(pid) / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
    return directory


def hex_of(address: str, port: int = 9000) -> str:
    """Return an address as this machine's `/proc/net/tcp` writes it."""
    packed = ipaddress.ip_address(address).packed
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return b"".join(word[::-1] if sys.byteorder == "little" else word for word in words).hex().upper() + f":{port:04X}"


BOTH = {"tcp": [(hex_of("127.0.0.1"), 7), (hex_of("0.0.0.0"), 9)], "tcp6": [(hex_of("::"), 5), (hex_of("::1"), 6)]}


@pytest.mark.parametrize(
    ("gone", "asked", "pid"),
    [
        ((), "127.0.0.1", 70),
        ((), "[::1]", 60),
        ((), "[0:0:0:0:0:0:0:1]", 60),
        ((), "127.0.0.2", 90),
        ((7,), "127.0.0.1", 90),
        ((6,), "[::1]", 50),
        ((7, 9), "127.0.0.1", None),
        ((5, 6), "[::1]", None),
        ((6, 7, 9), "localhost", 50),
    ],
)
def test_listener_at_the_exact_address_comes_first(
    tmp_path: Path, gone: tuple[int, ...], asked: str, pid: int | None
) -> None:
    tables = {name: [one for one in sockets if one[1] not in gone] for name, sockets in BOTH.items()}
    proc = fake_proc(tmp_path / "proc", tables, {10 * inode: [inode] for inode in (5, 6, 7, 9) if inode not in gone})
    assert listener_at(f"{asked}:9000", proc) == pid


def test_listener_of_another_user_is_not_replaced(tmp_path: Path) -> None:
    proc = fake_proc(tmp_path / "proc", BOTH, {90: [9]})
    assert listener_at("127.0.0.1:9000", proc) is None, "the listener at every address is another node"


def test_listener_that_closes_a_file_meanwhile_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = fake_proc(tmp_path / "proc", BOTH, {70: [7, 7]})
    read, failures = os.readlink, [FileNotFoundError()]

    def readlink(path: Path) -> str:
        if failures:
            raise failures.pop()
        return read(path)

    monkeypatch.setattr(os, "readlink", readlink)
    assert listener_at("127.0.0.1:9000", proc) == 70


def test_listener_on_a_system_without_proc_is_unknown(tmp_path: Path) -> None:
    assert listener_at("127.0.0.1:9000", tmp_path / "proc") is None
    assert not lists_listeners(tmp_path / "proc")
    assert lists_listeners(fake_proc(tmp_path / "proc", {"tcp": []}, {}))


@pytest.mark.parametrize(
    ("is_listed", "why", "hint"),
    [
        (True, "no process of yours listens there", "if it runs as another user, look up its process id"),
        (False, "this system does not list the listeners", "if it runs, look up its process id"),
    ],
)
def test_silent_node_without_a_process_may_have_ended(
    monkeypatch: pytest.MonkeyPatch, is_listed: bool, why: str, hint: str
) -> None:
    """The node may be stopped, so nothing advises to give it up."""
    at = "127.0.0.1:9000"
    crawl = SimpleNamespace(ok={}, errors={at: PeerUnreachable("refused")})
    monkeypatch.setattr(control, "listener_at", lambda address: None)
    monkeypatch.setattr(control, "lists_listeners", lambda: is_listed)
    with pytest.raises(Failure) as caught:
        control._find_process(SimpleNamespace(members=lambda only: crawl), at)  # type: ignore[arg-type]
    text = f"{caught.value} {caught.value.hint}"
    assert why in text
    assert f"It may have ended; {hint}" in text
    assert "forget" not in text
