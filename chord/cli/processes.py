"""The process that listens at an address of this machine, found without asking it.

A process that SIGSTOP has stopped answers no request, but its socket still listens. Linux lists the sockets of all
processes, and the descriptors of the user's own.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from chord.config import split_address

PROC: Final = Path("/proc")
LISTEN: Final = "0A"
"""The state of a listening socket in `/proc/net/tcp`."""

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def listener_at(address: str, proc: Path = PROC) -> int | None:
    """Return the id of the process that listens at an address of this machine.

    Args:
        address: HOST:PORT; the host is a loopback address or `localhost`.
        proc: the directory of processes.

    Returns:
        The process id. None: no process of this user listens there, or this system does not list its sockets.
    """
    host, port = split_address(address)
    asked = None if host == "localhost" else ipaddress.ip_address(host)
    named, wide = set(), set()  # sockets at this address alone, and at every address
    for ip, its_port, inode in _listening(proc):
        if its_port == port:
            if ip.is_loopback if asked is None else ip == asked:
                named.add(f"socket:[{inode}]")
            elif ip.is_unspecified and (asked is None or ip.version == asked.version):
                wide.add(f"socket:[{inode}]")
    wanted = named or wide  # the system prefers the exact address for a new connection
    return next((pid for pid in _processes(proc) if not wanted.isdisjoint(_files(proc / str(pid) / "fd"))), None)


def lists_listeners(proc: Path = PROC) -> bool:
    """Return whether this system lists its listening sockets, so that `listener_at` can find one."""
    return os.access(proc / "net" / "tcp", os.R_OK)


def _listening(proc: Path) -> Iterator[tuple[IpAddress, int, str]]:
    """Yield address, port and inode of each listening socket."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTEN:
                ip, _, port = local.partition(":")
                yield _ip(ip), int(port, 16), inode


def _ip(text: str) -> IpAddress:
    """Return the address that `/proc/net/tcp` writes as words of four bytes, each in the order of this machine."""
    words = [bytes.fromhex(text[at : at + 8]) for at in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(word[::-1] if sys.byteorder == "little" else word for word in words))


def _processes(proc: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return []


def _files(directory: Path) -> list[str]:
    """Return the files that the descriptors in a directory mean; none if it belongs to another user."""
    found = []
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    for name in names:
        with suppress(OSError):  # the process has closed this file meanwhile
            found.append(os.readlink(directory / name))
    return found
