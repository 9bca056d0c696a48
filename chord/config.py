"""Configuration: the constants of a ring, the settings of a node, and the presets.

All nodes of a ring must have the same `RingConstants`, which are fixed when the ring is created. The first frame
carries them, and a node refuses a peer with other constants. `Timing` and `Limits` are each node's own. `NodeConfig`
combines them and refuses values that contradict each other.
"""

from __future__ import annotations

import functools
import hashlib
import math
from typing import Any, Literal, TypeAlias

import msgspec

from chord.errors import ConfigError, PeerUnreachable
from chord.ids import BITS_MAX, BITS_MIN, Circle

PROTOCOL_VERSION = 1
STAND_INS_MAX = 3
"""Largest number of stand-ins of a key.

A stand-in is a node behind the replicas that takes writes for a down replica.
"""

EVERYWHERE = ("0.0.0.0", "::")
NO_HOST_HAS = frozenset(" ,/?#@[]\\")  # a text with one of these is a URL or no address at all
SKEW_REPORTED_MS = 5_000
SKEW_REFUSED_MS = 60_000
"""Difference between a coordinator's clock and a neighbour's beyond which writes with a time to live are refused."""

Preset: TypeAlias = Literal["local", "lan", "wan"]
"""The name of a set of periods and timeouts, a `Timing`: for one machine, a local network, or a wide area network."""


@functools.cache
def _circle(bits: int) -> Circle:
    """Return the circle of 2**bits points, as one object for all nodes."""
    return Circle(bits)


class RingConstants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The constants of a ring.

    Attributes:
        bits: m, the width of the identifier circle in bits; 3 to 160.
        successors: r, the number of other nodes that a successor list names; 1 to 64. 8 suffices up to about 250 nodes,
            16 above.
        replicas: N, the number of nodes that keep a copy of each record; 1 to 16, and at most `successors` + 1.
        cluster: a name that keeps rings for different purposes apart; 1 to 64 characters.

    All nodes of a ring must have the same constants. A peer with other constants is refused in the first frame
    (`OtherRing`).
    """

    bits: int = 160
    successors: int = 8
    replicas: int = 3
    cluster: str = "chord"

    def __post_init__(self) -> None:
        if not BITS_MIN <= self.bits <= BITS_MAX:
            raise ConfigError(f"bits must be between {BITS_MIN} and {BITS_MAX}, not {self.bits}")
        if not 1 <= self.successors <= 64:
            raise ConfigError(f"successors must be between 1 and 64, not {self.successors}")
        if not 1 <= self.replicas <= 16:
            raise ConfigError(f"replicas must be between 1 and 16, not {self.replicas}")
        if self.replicas > self.successors + 1:
            raise ConfigError(
                f"{self.replicas} replicas need at least {self.replicas - 1} successors, "
                f"not {self.successors}: a vnode finds them in its successor list"
            )
        if not 1 <= len(self.cluster) <= 64:
            raise ConfigError("cluster must be a name of 1 to 64 characters")

    @property
    def circle(self) -> Circle:
        """The circle of the points 0 to 2^bits - 1."""
        return _circle(self.bits)

    @property
    def stand_ins(self) -> int:
        """The number of stand-ins of a key.

        A stand-in is a node behind the replicas that takes writes for a down replica.
        """
        return 0 if self.replicas == 1 else min(STAND_INS_MAX, self.successors + 1 - self.replicas)

    @property
    def quorum(self) -> int:
        """The default of R and W: the smallest number of replicas that is a majority of N."""
        return self.replicas // 2 + 1

    @property
    def fingerprint(self) -> str:
        """A hash of these constants and of the version of the protocol, as sixteen hexadecimal digits.

        Two nodes can belong to one ring only if their fingerprints are equal.
        """
        text = f"chord/{PROTOCOL_VERSION} m={self.bits} r={self.successors} N={self.replicas} {self.cluster}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Periods and timeouts, in seconds.

    Attributes:
        stabilize_s: T, the mean period of the stabilize rounds that maintain the ring. Each interval is drawn from 0.5
            T to 1.5 T.
        finger_s: the period at which one finger is refreshed.
        period_growth_max: the factor by which the periods of stabilize, fingers, self-lookups and anti-entropy may
            grow while nothing changes; at least 1. Any change in the ring resets them at once.
        gossip_s: the mean period of the exchanges of recently changed entries of the membership list.
        gossip_growth_max: the factor by which `gossip_s` may grow while no entry has changed recently; at least 1. It
            does not depend on `period_growth_max`.
        gossip_compare_s: the mean period of the comparisons of whole membership lists.
        self_lookup_rounds: the mean number of stabilize rounds between two self-lookups, which find a split of the
            ring; at least 1.
        timeout_floor_s: the smallest timeout of a call. The timeout is the smoothed round-trip time to the peer plus
            four times its mean variation.
        timeout_stranger_s: the timeout of a call to a peer without a measured time; from the floor to the cap.
        timeout_cap_s: the largest timeout of a call.
        suspect_misses: unanswered calls in a row after which a peer is suspect, so lookups route around it; at least 1.
        dead_misses: unanswered calls in a row after which a peer is dead and leaves the successor lists; at least
            `suspect_misses`.
        dead_refusals: refused connections in a row after which a peer is dead and leaves these lists; at least 1.
        reprobe_first_s: the wait between the first and the second probe of a down vnode. Each further wait is twice as
            long.
        reprobe_max_s: the longest of these waits.
        down_out_s: how long a down node keeps its place before other nodes get copies of its records. If it may hold
            more than the others, they report no key as "not found" until it is back, or `chord forget` declares it
            lost.
        anti_entropy_s: the period at which an owner compares its arc with each replica.
        lease_s: how long the transfer of an arc may go without progress before both sides end it.
        leave_s: how long a node that leaves may take to hand over its arcs. Other nodes count a node as leaving for
            this long at most.
        drain_s: how long calls in flight may take to finish when the node stops.
        unsaved_s: how long the node may be unable to write its identity file before it reports that.
        disk_stall_s: how long the disk may work on one transaction. After that, the node serves no requests until the
            transaction ends.
        disk_stop_s: how long the disk may work on one transaction before the node stops as in a crash; at least
            `disk_stall_s`.
        scrub_s: the period in which the scrub reads and checks every record of a store on a disk. It takes longer if
            `scrub_bytes_s` requires that. The default is a week, because two copies of a record hardly rot in the same
            week.
        resume_s: how long a restarted node waits for a running ring before it resumes with its stored successor lists.
        grace_s: how long tombstones and expired values stay in a store before they are removed. A short entry in the
            reap log remains. A node may be down for longer without harm, because it keeps its store.

    Bounds: each time is more than 0, and finite.
    """

    stabilize_s: float = 1.0
    finger_s: float = 1.0
    period_growth_max: float = 8.0
    gossip_s: float = 1.0
    gossip_growth_max: float = 8.0
    gossip_compare_s: float = 60.0
    self_lookup_rounds: int = 4
    timeout_floor_s: float = 0.1
    timeout_stranger_s: float = 0.5
    timeout_cap_s: float = 5.0
    suspect_misses: int = 1
    dead_misses: int = 3
    dead_refusals: int = 2
    reprobe_first_s: float = 60.0
    reprobe_max_s: float = 960.0
    down_out_s: float = 600.0
    anti_entropy_s: float = 60.0
    lease_s: float = 5.0
    leave_s: float = 10.0
    drain_s: float = 2.0
    unsaved_s: float = 60.0
    disk_stall_s: float = 10.0
    disk_stop_s: float = 60.0
    scrub_s: float = 604800.0
    resume_s: float = 1.0
    grace_s: float = 86400.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name.endswith("_s") and not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be a positive number of seconds, not {getattr(self, name)}")
        if not self.timeout_floor_s <= self.timeout_stranger_s <= self.timeout_cap_s:
            raise ConfigError("timeouts must satisfy floor <= stranger <= cap")
        if not 1 <= self.suspect_misses <= self.dead_misses or self.dead_refusals < 1:
            raise ConfigError("misses must satisfy 1 <= suspect <= dead, and refusals >= 1")
        if self.disk_stop_s < self.disk_stall_s:
            raise ConfigError(f"disk_stop_s must be at least disk_stall_s, {self.disk_stall_s}, not {self.disk_stop_s}")
        if self.self_lookup_rounds < 1:
            raise ConfigError("self_lookup_rounds must be at least 1")
        for name in ("period_growth_max", "gossip_growth_max"):
            if not 1 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be at least 1 and finite, not {getattr(self, name)}")

    def rounds_s(self, count: int) -> float:
        """Return the most seconds that a vnode usually takes for `count` stabilize rounds.

        The first of these periods may have grown by `period_growth_max`; the others have the length `stabilize_s`.
        """
        return (count + self.period_growth_max - 1) * self.stabilize_s


PRESETS: dict[str, Timing] = {
    "local": Timing(stabilize_s=0.25, finger_s=0.25, timeout_cap_s=2.0, disk_stall_s=4.0),
    "lan": Timing(),
    "wan": Timing(
        stabilize_s=15.0,
        finger_s=15.0,
        gossip_s=15.0,
        timeout_floor_s=0.3,
        timeout_stranger_s=2.0,
        timeout_cap_s=8.0,
        disk_stall_s=16.0,
        dead_misses=5,
    ),
}


_NOT_GIVEN = Timing()
"""The value of `NodeConfig.timing` if none was given, recognised by identity.

`PRESETS["lan"]` equals it, but counts as given, so it may be combined with any preset.
"""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Upper limits on resources.

    Work beyond a limit gets a clear error, so no queue grows without a bound.

    Attributes:
        frame_control_bytes_max: bytes in the body of a frame on the control stream; more than `bulk_from_bytes`.
        frame_bulk_bytes_max: bytes in the body of a frame on the bulk stream; at least `frame_control_bytes_max`, and
            less than 16 MiB.
        frame_items_max: CBOR items in a frame (each string, number and array); at least `page_bytes`. A page never has
            more items than that.
        partial_bytes_max: bytes of incomplete frames on all connections together; at least `frame_bulk_bytes_max`.
            Beyond it the connections with the oldest incomplete frames are closed, those of clients first.
        bulk_from_bytes: requests and replies with more bytes than this use the bulk stream.
        buffer_bytes_max: bytes waiting to be written to one peer. Beyond it the peer's requests are refused. For a
            client, bytes in one batch of `put_many` or `import_many`.
        inflight_bytes_max: bytes of received requests in progress, from all peers together. A request is in progress
            while it waits for its answer.
        calls_per_connection_max: received requests in progress on one connection.
        calls_max: received requests in progress on all connections together. The same number limits the batch items in
            progress.
        clients_share: the share of `calls_max`, `inflight_bytes_max` and `connections_max` that clients may use, and
            nodes on their behalf; at most 1. The rest is reserved for requests between nodes.
        connections_max: accepted streams that are open, in all.
        connections_per_host_max: accepted streams that are open, from one IP address outside loopback, not counting
            those of nodes.
        lookups_max: host names being looked up at once. Beyond it dials to other names fail.
        handshake_s: seconds until the handshake of a new stream must be complete.
        frame_s: seconds until a frame must be complete after its first bytes have arrived.
        idle_s: seconds until an unused stream is closed.
        stuck_s: seconds until the connection of a peer that reads nothing is closed.
        key_bytes_max: bytes of a key; at most 1024.
        value_bytes_max: bytes of a value; at most 1 MiB.
        record_bytes_max: bytes of a record with several concurrent values. Beyond it a put must replace some of them
            (`VersionConflict`). With 16 KiB more it must fit `frame_bulk_bytes_max`.
        siblings_max: concurrent values of a record; at most 64. Beyond it a put must replace some of them.
        context_ahead_max: largest number of writes of one actor that the context of a put may cover beyond those that
            the replica knows. At most 2^32, so that counts always fit a message.
        page_bytes: approximate bytes of records in one page of a scan, transfer or repair. A larger record is a page of
            its own.
        repair_bytes_s: bytes of records per second that replica sync moves.
        scrub_bytes_s: bytes of records per second that the scrub reads.
        staged_bytes_max: bytes of changes that wait for the disk; at least two bulk frames. A write beyond it is
            refused (`Overloaded`).
        free_bytes_min: bytes that must fit on a disk that was full before its node reports that it has recovered. At
            most 64 MiB, because the node writes them to see whether they fit.
        hints_max: records kept for replicas that are down. Beyond it the node refuses further ones (`Overloaded`).
        passive_max: addresses of down vnodes that a node probes and reports. It also remembers others, up to
            `unreachable_max`.
        unreachable_max: down vnodes beyond `passive_max` that a node remembers. Beyond it the node loses the oldest.
        forgotten_max: addresses of nodes that an operator gave up, remembered by each vnode. Beyond it the oldest goes.
        goodbyes_max: vnodes that a node remembers as gone for good. Beyond it the node forgets the oldest news, and
            waits for such a vnode as for a down one.
        owners_max: vnodes for which a node remembers when they last owned an arc. Beyond it the node forgets the oldest
            news. An older goodbye of such a vnode may then count as its last.
        arcs_max: arcs with a known owner in the owner cache.
        members_max: nodes in the membership list; at most 4,096. A larger ring keeps no list.
        reap_log_entries: entries that the reap log of a slice, a 4,096th of the circle, keeps for stores that are away;
            0 and more. Beyond it the oldest go when every replica has seen them and no node is down.
        reap_log_entries_max: entries of the reap log of a slice beyond which the oldest go in any case; at least
            `reap_log_entries`.
        cut_lease_s: seconds for which a node keeps its part of a consistent backup while no page of it is read.
        cut_age_max_s: seconds after which a node drops its part of a consistent backup, even if its pages are read. A
            longer backup is incomplete. Until then the log of the database keeps every change since the cut.
        cuts_per_minute: cuts for consistent backups that a node makes within a minute. Beyond it a backup is
            incomplete.
        events_max: events that a node keeps for watchers. Beyond it the oldest goes.
        polls_max: requests for events that wait at a node at once. Beyond it the node refuses further ones
            (`Overloaded`).
        http_connections_max: open connections to the address `NodeConfig.http`. Beyond it, a new connection ends the
            oldest one.

    Bounds: each is more than 0, and finite, unless stated otherwise.
    """

    frame_control_bytes_max: int = 64 * 1024
    frame_bulk_bytes_max: int = (1 << 20) + 64 * 1024
    frame_items_max: int = 64 * 1024
    partial_bytes_max: int = 32 << 20
    bulk_from_bytes: int = 16 * 1024
    buffer_bytes_max: int = 4 << 20
    inflight_bytes_max: int = 64 << 20
    calls_per_connection_max: int = 128
    calls_max: int = 4096
    clients_share: float = 0.75
    connections_max: int = 1024
    connections_per_host_max: int = 32
    lookups_max: int = 64
    handshake_s: float = 5.0
    frame_s: float = 10.0
    idle_s: float = 120.0
    stuck_s: float = 10.0
    key_bytes_max: int = 1024
    value_bytes_max: int = 1 << 20
    record_bytes_max: int = 1 << 20
    siblings_max: int = 64
    context_ahead_max: int = 1 << 32
    page_bytes: int = 64 * 1024
    repair_bytes_s: int = 8 << 20
    scrub_bytes_s: int = 8 << 20
    staged_bytes_max: int = 64 << 20
    free_bytes_min: int = 4 << 20
    hints_max: int = 1_000_000
    passive_max: int = 128
    unreachable_max: int = 4096
    forgotten_max: int = 256
    goodbyes_max: int = 1024
    owners_max: int = 1024
    arcs_max: int = 4096
    members_max: int = 4096
    reap_log_entries: int = 1024
    reap_log_entries_max: int = 2048
    cut_lease_s: float = 60.0
    cut_age_max_s: float = 3600.0
    cuts_per_minute: int = 60
    events_max: int = 4096
    polls_max: int = 16
    http_connections_max: int = 64

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value, may_be_zero = getattr(self, field), field.startswith("reap_log")
            if not (value > 0 or (may_be_zero and value == 0)) or not value < math.inf:
                raise ConfigError(f"{field} must be {'0 or more' if may_be_zero else 'positive'}, not {value}")
        if self.reap_log_entries > self.reap_log_entries_max:
            raise ConfigError("reap_log_entries must be at most reap_log_entries_max")
        if self.key_bytes_max > 1024 or self.value_bytes_max > 1 << 20 or self.siblings_max > 64:
            raise ConfigError("key_bytes_max, value_bytes_max and siblings_max may be lowered, not raised")
        if self.members_max > 4096:
            raise ConfigError(f"members_max must be at most 4096, not {self.members_max}")
        if not self.bulk_from_bytes < self.frame_control_bytes_max <= self.frame_bulk_bytes_max < 1 << 24:
            raise ConfigError("frame limits must satisfy bulk_from_bytes < control <= bulk < 16 MiB")
        if self.staged_bytes_max < 2 * self.frame_bulk_bytes_max:
            raise ConfigError(
                f"staged_bytes_max must be at least two bulk frames, {2 * self.frame_bulk_bytes_max} bytes, "
                f"not {self.staged_bytes_max}"
            )
        if self.free_bytes_min > 64 << 20:
            raise ConfigError(f"free_bytes_min must be at most 64 MiB, not {self.free_bytes_min}")
        if self.partial_bytes_max < self.frame_bulk_bytes_max:
            raise ConfigError("partial_bytes_max must be at least frame_bulk_bytes_max, so that one frame fits")
        if self.frame_items_max < self.page_bytes:
            raise ConfigError("frame_items_max must be at least page_bytes, so that a page fits a frame")
        if self.context_ahead_max > 1 << 32:
            raise ConfigError(f"context_ahead_max must be at most 2^32, not {self.context_ahead_max}")
        if self.clients_share > 1:
            raise ConfigError(f"clients_share must be at most 1, not {self.clients_share}")
        if self.record_bytes_max + 16 * 1024 > self.frame_bulk_bytes_max:
            raise ConfigError("a record must fit a bulk frame: record_bytes_max + 16 KiB <= frame_bulk_bytes_max")


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node's configuration.

    Attributes:
        listen: HOST:PORT to accept calls on. Port 0 takes a free one. IPv6 is written `[::1]:9000`.
        advertise: HOST:PORT under which other nodes reach this one; default: the bound address.
        join: addresses of members to join by. If empty, the node creates a ring or resumes the stored one.
        name: a name for people, 1 to 64 printable characters; default: the advertised address.
        vnodes: the number of points this node holds on the circle, 1 to 64.
        id: the node's point on the circle, for demonstrations and tests; only with one vnode.
        data_dir: the directory for records, identity and known peers. None keeps them in memory, so the node is new at
            each start.
        ring: the constants of the ring, see `RingConstants`.
        preset: local (one machine), lan or wan. It supplies the defaults of `timing`, and `status` reports it.
        members: on: the node keeps a list of all members, and gossips about it. off: it does not.
        timing: periods and timeouts, see `Timing`; default: those of the preset. A given `Timing` replaces all of them.
        limits: upper limits, see `Limits`.
        http: HOST:PORT on which `chord node` serves health and metrics over HTTP; None: it does not. Programs that run
            a node themselves ignore it.
    """

    listen: str = "127.0.0.1:0"
    advertise: str | None = None
    join: tuple[str, ...] = ()
    name: str | None = None
    vnodes: int = 1
    id: int | None = None
    data_dir: str | None = None
    ring: RingConstants = RingConstants()
    preset: Preset = "lan"
    members: Literal["off", "on"] = "off"
    timing: Timing = _NOT_GIVEN
    limits: Limits = Limits()
    http: str | None = None

    def __post_init__(self) -> None:
        if self.timing is _NOT_GIVEN:
            msgspec.structs.force_setattr(self, "timing", PRESETS[self.preset])
        if split_address(self.listen)[0] in EVERYWHERE and self.advertise is None:
            raise ConfigError(
                f"listen address {self.listen} means every interface: advertise an address that other nodes can reach"
            )
        if self.http is not None:
            split_address(self.http)
        for address in (*self.join, *((self.advertise,) if self.advertise else ())):
            host, port = split_address(address)
            if port == 0:
                raise ConfigError(f"invalid address {address}: other nodes cannot reach port 0")
            if host in EVERYWHERE:
                raise ConfigError(
                    f"invalid address {address}: means every interface, not an address that other nodes can reach"
                )
        if not 1 <= self.vnodes <= 64:
            raise ConfigError(f"vnodes must be between 1 and 64, not {self.vnodes}")
        if self.id is not None:
            if self.vnodes != 1:
                raise ConfigError("id can only be given to a node with one vnode")
            if not 0 <= self.id < self.ring.circle.size:
                top = self.ring.circle.size - 1
                raise ConfigError(f"id {self.id} is not on a circle of {self.ring.bits} bits (0 to {top})")
        if self.data_dir == "":
            raise ConfigError("data_dir is empty: expected a directory, or no data_dir to keep the data in memory")
        if self.name is not None and not (1 <= len(self.name) <= 64 and self.name.isprintable()):
            raise ConfigError("name must have 1 to 64 printable characters")


def split_address(address: str) -> tuple[str, int]:
    """Split the text `host:port` into host and port; `[::1]:9000` gives `::1` and 9000.

    Raises:
        ConfigError: the text has another form, no host can have that name, or the port is not 0 to 65535.
    """
    if not isinstance(address, str):  # for example a list of addresses
        raise ConfigError(f"invalid address {address!r}: expected a string, HOST:PORT")
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535 or len(address) > 255:
        raise ConfigError(f"invalid address {address!r}: expected HOST:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not _is_name(host):
        raise ConfigError(f"invalid address {address!r}: expected HOST:PORT with a valid host name")
    return host, int(port)


def to_dial(address: str) -> tuple[str, int]:
    """Split HOST:PORT of another node, which may be invalid, into host and port.

    Raises:
        PeerUnreachable: the address is invalid, so no node can be there. `is_refused` is set.
    """
    try:
        return split_address(address)
    except ConfigError as error:
        raise PeerUnreachable(error.message, is_refused=True) from None


def _is_name(host: str) -> bool:
    """Return whether a resolver accepts a host name.

    For a label that is empty or too long, a resolver raises an error other than `OSError`.
    """
    if not host.isprintable() or set(host) & NO_HOST_HAS:
        return False
    if host.isascii():
        return all(1 <= len(label) <= 63 for label in host.removesuffix(".").split("."))
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def from_mapping(values: dict[str, Any]) -> NodeConfig:
    """Return the configuration described by plain values, as read from a TOML file.

    The keys are the fields of `NodeConfig`. The tables `ring`, `timing` and `limits` need only the fields that differ
    from their defaults. The defaults of `timing` are those of the preset.

    Raises:
        ConfigError: an unknown key, a wrong type, or values that contradict each other.
    """
    preset = values.get("preset", "lan")
    if not isinstance(preset, str) or preset not in PRESETS:
        raise ConfigError(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    changes = values.get("timing", {})
    if not isinstance(changes, dict):
        raise ConfigError(f"timing must be a table, not {changes!r}")
    _refuse_unknown(values, NodeConfig, "")
    timing = {**msgspec.to_builtins(PRESETS[preset]), **changes}
    try:
        return msgspec.convert({**values, "preset": preset, "timing": timing}, NodeConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(_in_words(str(error))) from None


def _refuse_unknown(values: dict[str, Any], struct: type[msgspec.Struct], table: str) -> None:
    """Refuse a key that is no field of `struct`, and suggest the most similar field.

    Args:
        values: the keys to check, also in nested tables.
        struct: the class of the configuration.
        table: the name of the table in the file, for the error; "" for the top level.

    Raises:
        ConfigError: there is such a key.
    """
    from difflib import get_close_matches  # rarely needed, so imported here

    tables: dict[str, type[msgspec.Struct]] = {"ring": RingConstants, "timing": Timing, "limits": Limits}
    for key, value in values.items():
        if key not in struct.__struct_fields__:
            where = f" in [{table}]" if table else ""
            near = get_close_matches(key, struct.__struct_fields__, 1, 0.5)
            there = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(struct.__struct_fields__)}"
            raise ConfigError(f"unknown key {key}{where}; {there}")
        if not table and key in tables and isinstance(value, dict):
            _refuse_unknown(value, tables[key], key)


def _in_words(error: str) -> str:
    """Return an error of msgspec with its key first, in words.

    For example, `$.ring.bits` becomes bits in [ring].
    """
    for word, plain in (("`int`", "a whole number"), ("`float`", "a number"), ("`str`", "a string"),
                        ("`object`", "a table"), ("`array`", "a list"), ("`bool`", "true or false")):
        error = error.replace(word, plain)
    what, _, path = error.partition(" - at `$.")
    *table, key = path.rstrip("`").split(".")
    return f"{key}{f' in [{table[0]}]' if table else ''}: {what[:1].lower()}{what[1:]}" if key else what
