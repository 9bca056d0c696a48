"""etcd, as a reference: three servers in Go that keep each write on disk by Raft.

python -m benchmarks.others.etcd client HOST:PORT…                in its own environment, which has grpcio
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.others import program

if TYPE_CHECKING:
    from benchmarks.others.processes import Group
    from benchmarks.others.system import Home

LENGTH_DELIMITED = 2
KEY_FIELD, PUT_VALUE_FIELD = 1, 2
RANGE_KVS_FIELD, KV_VALUE_FIELD = 2, 5

ACKNOWLEDGED_BY = "a majority of the three servers has it in the log on disk (fsync)"
SETTINGS = "three servers, defaults, linearizable reads; gRPC with one channel for each server, used in turn"


def varint(number: int) -> bytes:
    """Encode a whole number as Protocol Buffers do (a varint)."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def bytes_field(number: int, content: bytes) -> bytes:
    """Encode a Protocol Buffers field with bytes.

    Args:
        number: the number of the field.
        content: its bytes.
    """
    return varint(number << 3 | LENGTH_DELIMITED) + varint(len(content)) + content


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each field with bytes in a Protocol Buffers message.

    Fields of numbers are skipped.
    """
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        tag = number()
        if tag & 7 == LENGTH_DELIMITED:
            length = number()
            yield tag >> 3, data[at : at + length]
            at += length
        else:
            number()


class Channels:
    """A benchmark client with one gRPC channel for each server.

    The key decides which server is asked.
    """

    def __init__(self, channels: list[Any]) -> None:
        self._puts = [channel.unary_unary("/etcdserverpb.KV/Put") for channel in channels]
        self._ranges = [channel.unary_unary("/etcdserverpb.KV/Range") for channel in channels]

    async def put(self, key: str, value: bytes) -> None:
        """Put a value; raise the error if the server answers with one."""
        name = key.encode()
        request = bytes_field(KEY_FIELD, name) + bytes_field(PUT_VALUE_FIELD, value)
        await self._puts[sum(name) % len(self._puts)](request)

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key by a linearizable read; None if the key has no value."""
        name = key.encode()
        reply = await self._ranges[sum(name) % len(self._ranges)](bytes_field(KEY_FIELD, name))
        pairs = [content for number, content in fields(reply) if number == RANGE_KVS_FIELD]
        return dict(fields(pairs[0])).get(KV_VALUE_FIELD, b"") if pairs else None


async def client(entries: list[str]) -> None:
    """Run a client that makes the operations requested on standard input.

    Args:
        entries: addresses of the servers.
    """
    import grpc

    await program.serve_on_asyncio(Channels([grpc.aio.insecure_channel(entry) for entry in entries]))


def start(group: Group, home: Home, nodes: int) -> list[str]:
    """Start the servers, wait until they listen, and return their addresses.

    Each server must know all ports at its start, so free ports are chosen before.
    """
    from benchmarks.others.processes import free_port, until_it_listens

    assert home.root is not None
    ports = [(free_port(), free_port()) for _ in range(nodes)]
    cluster = ",".join(f"n{i}=http://127.0.0.1:{peers}" for i, (_, peers) in enumerate(ports))
    servers = []
    for i, (clients, peers) in enumerate(ports):
        here, there = f"http://127.0.0.1:{clients}", f"http://127.0.0.1:{peers}"
        servers.append(
            group.node(
                [str(home.root / "usr/bin/etcd"), "--name", f"n{i}", "--data-dir", str(group.directory / f"n{i}"),
                 "--listen-client-urls", here, "--advertise-client-urls", here, "--listen-peer-urls", there,
                 "--initial-advertise-peer-urls", there, "--initial-cluster", cluster, "--log-level", "error"]
            )
        )  # fmt: skip
    for server, (clients, _) in zip(servers, ports, strict=True):
        until_it_listens(server, clients)
    return [f"127.0.0.1:{clients}" for clients, _ in ports]


if __name__ == "__main__":
    program.main({"client": client})
