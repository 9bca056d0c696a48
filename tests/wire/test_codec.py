"""The codec: messages survive encoding and any chunking, and hostile bytes raise only `MalformedMessage`."""

from __future__ import annotations

import json
import math
import random
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import cbor2
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chord.errors import (
    BY_CODE,
    ChordError,
    DefiniteError,
    InvalidRequest,
    LookupFailed,
    MalformedMessage,
    NotOwner,
    OtherRing,
    Overloaded,
    PeerUnreachable,
    RemoteFailure,
    UnknownRequest,
    retold,
)
from chord.ids import Circle, Point
from chord.wire.cbor import CONTACTS_MAX, DEPTH_MAX, Encoder, decode, require_items
from chord.wire.codec import (
    BODY_BYTES_MAX,
    BUDGET_MS_MAX,
    GOODBYE,
    PREFIX_BYTES,
    Codec,
    FrameKind,
    Frames,
    decode_hello,
    decode_refusal,
    encode_hello,
    encode_refusal,
    is_goodbye,
)
from chord.wire.messages import (
    REPLIES,
    REQUESTS,
    ActorClock,
    AreExpired,
    AreExpiredReply,
    AskLog,
    Candidate,
    Claim,
    CompareMembers,
    CompareMembersReply,
    Confirm,
    Contact,
    DeadActor,
    DecideQuarantine,
    Density,
    DensityReply,
    Describe,
    DescribeReply,
    EntryRun,
    ErrorReply,
    EventInfo,
    FetchLogs,
    FindNext,
    FindNextReply,
    ForwardReply,
    Get,
    GetEvents,
    GetEventsReply,
    GetLogs,
    GetLogsReply,
    GetMany,
    GetManyReply,
    GetMembers,
    GetMembersReply,
    GetMetrics,
    GetMetricsReply,
    GetQuarantine,
    GetQuarantineReply,
    GetReply,
    GetRing,
    GetRingReply,
    GetSeen,
    GetSeenReply,
    GetStatus,
    GiveMarks,
    Gossip,
    GossipReply,
    Got,
    Hello,
    HistogramInfo,
    Holding,
    HotKey,
    LogEntry,
    MarkedArc,
    MemberEntry,
    Merge,
    Notify,
    Ping,
    PingReply,
    Put,
    PutMany,
    PutManyReply,
    ReadCopies,
    ReadCopiesReply,
    ReadCopy,
    ReadCopyReply,
    ReadDigest,
    ReadDigestReply,
    Record,
    Reply,
    Request,
    Sample,
    SampleReply,
    Scan,
    ScanReply,
    SliceFingerprints,
    SliceLog,
    SliceSeen,
    Status,
    StoreCopies,
    StoreCovering,
    StoreCoveringReply,
    StoreLogs,
    Trace,
    TrafficInfo,
    UpTo,
    Version,
    Via,
    Vouch,
    VouchReply,
    Written,
    Wrote,
)
from chord.wire.messages.members import COUNT_MAX, START_MAX

CIRCLE = Circle(160)
CODEC = Codec(CIRCLE)
TOY = Codec(Circle(8))
LIMIT = 64 * 1024
GOLDEN = Path(__file__).parent / "golden" / "wire.json"


def body_of(frame: bytes) -> bytes:
    """Return a frame's body; the prefix must fit it."""
    assert int.from_bytes(frame[1:PREFIX_BYTES], "big") == len(frame) - PREFIX_BYTES
    return frame[PREFIX_BYTES:]


# -- strategies: any message, by its type ------------------------------------------------------


def values_of(info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Draw values of a type as msgspec describes it, within its bounds."""
    inspect = msgspec.inspect
    match info:
        case inspect.StructType():
            return st.builds(info.cls, *(values_of(field.type) for field in info.fields))
        case inspect.CustomType():
            assert info.cls is Point
            return st.integers(0, CIRCLE.size - 1).map(Point)
        case inspect.VarTupleType():
            return st.lists(values_of(info.item_type), max_size=min(info.max_length or 3, 3)).map(tuple)
        case inspect.TupleType():
            return st.tuples(*(values_of(item) for item in info.item_types))
        case inspect.UnionType():
            return st.one_of(*(values_of(item) for item in info.types))
        case inspect.BytesType():
            return st.binary(min_size=info.min_length or 0, max_size=min(info.max_length or 40, 40))
        case inspect.StrType():
            text = st.text(min_size=info.min_length or 0, max_size=min(info.max_length or 20, 20))
            return text.filter(lambda t: t.encode(errors="ignore").decode() == t)
        case inspect.IntType():
            low, high = -(1 << 63) if info.ge is None else info.ge, (1 << 63) - 1 if info.le is None else info.le
            return st.integers(low, high if info.lt is None else info.lt - 1)
        case inspect.FloatType():
            return st.floats(info.ge, info.le, allow_nan=False, allow_infinity=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.LiteralType():
            return st.sampled_from(info.values)
    raise AssertionError(info)


def messages(*types: type[Any]) -> st.SearchStrategy[Any]:
    """Draw any message of these types."""
    return st.sampled_from(types).flatmap(lambda type_: values_of(msgspec.inspect.type_info(type_)))


points = st.integers(0, CIRCLE.size - 1).map(Point)
call_ids = st.integers(1, (1 << 63) - 1)
hellos = values_of(msgspec.inspect.type_info(Hello))
bodies = st.binary(max_size=200)

atoms = st.none() | st.booleans() | st.integers(-(1 << 64), (1 << 64) - 1) | st.floats() | st.text()
json_like = st.recursive(
    atoms | st.binary(max_size=24),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
"""CBOR of the right form with the wrong content."""


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_type", REQUESTS)
def test_reply_of_one_request_is_named_after_it(request_type: type[Request]) -> None:
    name = request_type.reply.__name__
    assert name == f"{request_type.__name__}Reply" or name in ("Done", "Written", "Status", "Trace")


# -- encoding and decoding -----------------------------------------------------------------------


@given(request=messages(*REQUESTS), call_id=call_ids, vnode=st.none() | points, budget=st.integers(1, BUDGET_MS_MAX))
def test_request_survives_encoding_and_decoding(
    request: Request, call_id: int, vnode: Point | None, budget: int
) -> None:
    call = CODEC.decode_call(body_of(CODEC.encode_call(call_id, vnode, budget, request, 0)))
    assert (call.call_id, call.vnode, call.budget_ms, call.request) == (call_id, vnode, budget, request)
    assert call.vnode is None or type(call.vnode) is Point


@pytest.mark.slow
@given(reply=messages(*REPLIES), call_id=call_ids)
def test_reply_survives_encoding_and_decoding(reply: Reply, call_id: int) -> None:
    assert CODEC.decode_reply(body_of(CODEC.encode_reply(call_id, reply)), type(reply)) == (call_id, reply)


@given(hello=hellos)
def test_hello_survives_encoding_and_decoding(hello: Hello) -> None:
    assert decode_hello(body_of(encode_hello(hello))) == hello


@pytest.mark.slow
@given(message=messages(*REQUESTS, *REPLIES))
def test_encoder_writes_the_bytes_of_cbor2(message: Request | Reply) -> None:
    def point_bytes(value: Any) -> bytes:
        assert isinstance(value, Point)
        return value.to_bytes(20, "big")

    plain = msgspec.to_builtins(message, enc_hook=point_bytes, builtin_types=(bytes,))
    assert Encoder(20, BODY_BYTES_MAX).encode(message) == cbor2.dumps(plain)


@pytest.mark.parametrize("number", [0, 23, 24, 255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32, (1 << 64) - 1, -1, -25])
def test_encoder_writes_edge_numbers_as_cbor2_does(number: int) -> None:
    assert Encoder(20, 100).encode(number) == cbor2.dumps(number)


@pytest.mark.parametrize("size", [0, 23, 24, 255, 256, 65535, 65536])
@pytest.mark.parametrize("make", [bytes, lambda n: "é" * (n // 2), lambda n: (None,) * n])
def test_encoder_writes_edge_sizes_as_cbor2_does(make: Callable[[int], Any], size: int) -> None:
    assert Encoder(20, BODY_BYTES_MAX).encode(make(size)) == cbor2.dumps(make(size))


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_error_survives_encoding_and_decoding(code: int) -> None:
    error = BY_CODE[code]("why not", peer=Contact(Point(7), "10.0.0.1:9000"), after_ms=250)
    call_id, back = CODEC.decode_error(body_of(CODEC.encode_error(3, error)))
    assert (call_id, type(back), back.message, back.peer, back.after_ms) == (3, type(error), *_parts(error))


def _parts(error: ChordError) -> tuple[object, ...]:
    return (error.message, error.peer, error.after_ms)


def test_unknown_error_code_is_a_remote_failure() -> None:
    _, error = CODEC.decode_error(body_of(CODEC.encode_error(3, ErrorReply(999, "from the future"))))
    assert type(error) is RemoteFailure
    assert error.message == "from the future"
    _, error = CODEC.decode_error(body_of(CODEC.encode_error(3, DefiniteError("nameless"))))
    assert type(error) is RemoteFailure


def test_long_or_invalid_error_message_is_cut_or_replaced() -> None:
    _, error = CODEC.decode_error(body_of(CODEC.encode_error(1, Overloaded("x" * 5000))))
    assert error.message == "x" * 1024
    _, error = CODEC.decode_error(body_of(CODEC.encode_error(1, Overloaded("file \udcff is gone"))))
    assert error.message == "file ? is gone"


def test_unreachable_answer_is_told_on_as_a_failed_lookup() -> None:
    """A node that hears it from a third node is reachable itself."""
    unreachable = PeerUnreachable("no descriptor is left")
    for error in (
        decode_refusal(body_of(encode_refusal(unreachable))),
        CODEC.decode_error(body_of(CODEC.encode_error(3, unreachable)))[1],
    ):
        assert isinstance(error, PeerUnreachable)
        assert (error.is_answer, type(retold(error))) == (True, LookupFailed)


def test_count_beyond_the_greatest_of_a_member_is_malformed() -> None:
    def gossip(count: int) -> bytes:
        return CODEC.encode_call(1, None, 5, Gossip((MemberEntry("h:1", START_MAX, count, "silent"),)), 7)

    assert isinstance(CODEC.decode_call(body_of(gossip(COUNT_MAX))).request, Gossip)
    assert isinstance(CODEC.decode_call(body_of(gossip(COUNT_MAX + 1))).request, MalformedMessage)


def test_refusal_has_no_peer() -> None:
    error = decode_refusal(body_of(encode_refusal(NotOwner("no", peer=Contact(Point(1), "a:1"), after_ms=5))))
    assert (type(error), error.message, error.peer, error.after_ms) == (NotOwner, "no", None, 5)
    # A peer that has agreed on a circle reads the same frame as the error of call 0.
    assert CODEC.decode_error(body_of(encode_refusal(OtherRing("r"))))[0] == 0


def test_goodbye_is_recognized_among_casts() -> None:
    assert Frames(LIMIT).feed(GOODBYE) == [(FrameKind.CAST, body_of(GOODBYE))]
    assert is_goodbye(body_of(GOODBYE))
    assert not is_goodbye(cbor2.dumps([2, "for later"]))
    with pytest.raises(MalformedMessage):
        is_goodbye(cbor2.dumps("goodbye"))


def test_message_beyond_the_frame_size_is_not_encoded() -> None:
    with pytest.raises(InvalidRequest, match="no frame holds more"):
        CODEC.encode_reply(1, GetReply((b"x" * (1 << 24),), b"", Contact(Point(1), "a:1")))


def everything_inside(*kinds: type) -> list[msgspec.inspect.Type]:
    """Return the types of all fields of these types, recursively, each struct once."""
    pending: list[msgspec.inspect.Type] = [msgspec.inspect.type_info(kind) for kind in kinds]
    found: list[msgspec.inspect.Type] = []
    seen: set[type] = set()
    while pending:
        info = pending.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in seen:
                continue
            seen.add(info.cls)
            pending += [field.type for field in info.fields]
        found.append(info)
        pending += [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
        pending += [info.item_type] if hasattr(info, "item_type") else []
    return found


def test_message_types_are_not_tracked_by_the_collector() -> None:
    inside = everything_inside(Hello, ErrorReply, *REQUESTS, *REPLIES)
    structs = [info.cls for info in inside if isinstance(info, msgspec.inspect.StructType)]
    assert not [cls for cls in structs if cls.__struct_config__.gc]
    assert Contact in structs
    assert len(structs) > len(REQUESTS) + len(REPLIES) + 10


def test_cached_bytes_of_a_contact_are_its_own() -> None:
    """A contact with a plain number as its id must not share the bytes of an equal contact with a `Point`."""
    codec, bare = Codec(Circle(8)), Contact(7, "a:1")  # type: ignore[arg-type]
    for contact in (bare, Contact(Point(7), "a:1"), Contact(Point(7), "a:2"), Contact(Point(8), "a:1")) * 2:
        frame = codec.encode_call(1, None, 1, Notify(contact), 0)
        assert codec.decode_call(body_of(frame)).request == Notify(contact)


def test_contacts_beyond_contacts_max_are_encoded_correctly() -> None:
    codec = Codec(Circle(16))
    for number in range(2 * CONTACTS_MAX + 1):
        contact = Contact(Point(number), f"a:{number}")
        assert codec.decode_call(body_of(codec.encode_call(1, None, 1, Notify(contact), 0))).request == Notify(contact)
    assert len(codec._encode.__self__._contacts) <= CONTACTS_MAX  # type: ignore[attr-defined]


def test_every_float_field_of_a_message_has_bounds() -> None:
    """Bounds exclude NaN and infinity, and no other check does."""
    inside = everything_inside(Hello, ErrorReply, *REQUESTS, *REPLIES)
    floats = [info for info in inside if isinstance(info, msgspec.inspect.FloatType)]
    assert len(floats) > 5
    assert all(info.ge is not None and info.le is not None and info.ge <= info.le < math.inf for info in floats)


# -- later versions: unknown and missing fields ------------------------------------------------


def call_body(*content: object, call_id: object = 5, vnode: object = None, budget: object = 100) -> bytes:
    return cbor2.dumps([call_id, vnode, budget, list(content), 0])


def test_unknown_fields_are_ignored_and_missing_take_defaults() -> None:
    me = [b"\x11" * 20, "a:1"]
    assert CODEC.decode_call(call_body(16, b"\x01" * 20)).request == FindNext(Point.from_bytes(b"\x01" * 20, "big"))
    newer = call_body(3, [*me, "new in contacts"], "new in notify", {"a": [1.5, None]})
    assert CODEC.decode_call(newer).request == Notify(Contact(Point.from_bytes(b"\x11" * 20, "big"), "a:1"))
    assert CODEC.decode_call(cbor2.dumps([1, None, 1, [1], 7, 0, "new in envelopes"])).request == Ping()
    assert CODEC.decode_reply(cbor2.dumps([1, [129]]), PingReply) == (1, PingReply())


def test_hello_of_a_later_version_is_decoded() -> None:
    newer = [7, 9, "node", "control", "x", 0, 0, 0, None, "", b"", [], "new"]
    assert decode_hello(cbor2.dumps(newer)).version_min == 7
    assert decode_hello(cbor2.dumps([1, 1, "client", "bulk"])).cluster == ""


# -- golden bytes: these never change ----------------------------------------------------------


def golden_frames() -> dict[str, bytes]:
    """Return the frames with golden bytes."""
    at = Point(0x8F3A << 144)
    me = Contact(at, "127.0.0.1:9000")
    toy = Contact(Point(80), "127.0.0.1:9080")
    member = MemberEntry("10.0.0.1:9000", 1_800_000_000, 1, "alive", (at,))
    gone = MemberEntry("10.0.0.2:9000", 1_800_000_000, 0, "silent")
    clock = ActorClock(b"A" * 16, 5, (Version(b"Ada", b"o" * 16, 1000),))
    entry = LogEntry(b"point of", (DeadActor(b"A" * 16, 5),), b"t" * 8)
    maker, runs = b"M" * 8, (EntryRun(b"M" * 8, 3, (entry,)),)
    log = SliceLog(7, (UpTo(maker, 3),), (UpTo(maker, 2),), (UpTo(b"I" * 8, 9),), b"t" * 8, runs)
    copies = (Record(b"user:42", (clock,)), Record(b"user:43", (), b"", (clock,)))
    traffic = TrafficInfo("repair", 1, 2, 300, 4)
    lag = HistogramInfo("loop_lag", "", (4, 0, 1), 0.75)
    fields = (("new_id", "80"), ("new_address", "127.0.0.1:9080"), ("old", None), ("step", 3), ("is_late", True))
    event = EventInfo(8, 40, 990, "127.0.0.1:9000", at, "SuccessorAdopted", (*fields, ("took_ms", 0.5)))
    return {
        "hello": encode_hello(Hello(1, 1, "node", "control", "chord", 160, 8, 1, b"r" * 16, "10.0.0.1:9000", b"i" * 8)),
        "hello with features": encode_hello(Hello(1, 1, "node", "control", features=1)),
        "call ping, node": CODEC.encode_call(1, None, 500, Ping(), 0),
        "call get, vnode": CODEC.encode_call(2, at, 5000, Get(b"user:42"), 0),
        "call put": CODEC.encode_call(3, at, 5000, Put(b"user:42", b"Ada", b"o" * 16, b""), 0),
        "call get with partners": CODEC.encode_call(12, at, 5000, Get(b"user:42", 0, (at,), with_owner=False), 0),
        "call get from any": CODEC.encode_call(14, None, 5000, Get(b"user:42", any=True), 0),
        "call read digest": CODEC.encode_call(13, at, 500, ReadDigest(b"user:42", at), 0),
        "reply read digest": CODEC.encode_reply(13, ReadDigestReply(b"d" * 24)),
        "call find next": CODEC.encode_call(4, at, 5000, FindNext(at, "fast", (at,), True), 0),
        "call confirm, 8 bits": TOY.encode_call(5, Point(80), 100, Confirm(Point(190)), 0),
        "call give marks": CODEC.encode_call(29, at, 500, GiveMarks((MarkedArc(at, Point(at + 9), me, 1000),)), 0),
        "call get many": CODEC.encode_call(6, None, 5000, GetMany((Get(b"user:42"), Get(b"user:43", 1))), 0),
        "call put many": CODEC.encode_call(
            7, at, 5000, PutMany((Put(b"user:42", b"Ada", b"o" * 16), Merge(Record(b"user:43", ())))), 0
        ),
        "call read copies": CODEC.encode_call(
            8, at, 500, ReadCopies((ReadCopy(b"user:42", b"d" * 16), ReadCopy(b"k"))), 0
        ),
        "reply got many": CODEC.encode_reply(
            6, GetManyReply((Got(GetReply((b"Ada",), b"ctx", me)), Got(None, ErrorReply(5, "busy", None, 50))))
        ),
        "reply wrote many": CODEC.encode_reply(7, PutManyReply((Wrote(Written(b"ctx", me, 2, 2)), Wrote(None)))),
        "reply copies read": CODEC.encode_reply(8, ReadCopiesReply((ReadCopyReply(None, True), None))),
        "call store copies": CODEC.encode_call(9, at, 500, StoreCopies(copies, False, (b"s" * 8, b"")), 0),
        "call store covering": CODEC.encode_call(28, at, 500, StoreCovering(copies[1], b"s" * 8), 0),
        "reply stored covering": CODEC.encode_reply(28, StoreCoveringReply(True)),
        "reply differs": CODEC.encode_reply(28, StoreCoveringReply(record=copies[1])),
        "call get seen": CODEC.encode_call(10, at, 500, GetSeen(at, Point(at + 1)), 0),
        "reply seen in": CODEC.encode_reply(10, GetSeenReply((SliceSeen(4095, b"s" * 8),))),
        "call get logs": CODEC.encode_call(11, at, 500, GetLogs((AskLog(7, (UpTo(b"M" * 8, 3),)),)), 0),
        "reply logs": CODEC.encode_reply(11, GetLogsReply((log,))),
        "call store logs": CODEC.encode_call(12, at, 500, StoreLogs((log,)), 0),
        "call fetch logs": CODEC.encode_call(13, at, 500, FetchLogs(at, Point(at + 1), me), 0),
        "call vouch": CODEC.encode_call(14, at, 500, Vouch(7, (Claim(b"user:42", b"A" * 16),)), 0),
        "reply vouched": CODEC.encode_reply(14, VouchReply((UpTo(b"M" * 8, 2),), (Holding(5, 1),))),
        "call are expired": CODEC.encode_call(15, at, 500, AreExpired((b"user:42", b"user:43")), 0),
        "reply expired": CODEC.encode_reply(15, AreExpiredReply((True, False))),
        "call scan": CODEC.encode_call(16, at, 5000, Scan(at, b"user:42", 128, "quarantine"), 0),
        "reply scan page": CODEC.encode_reply(
            16, ScanReply(copies, at, b"user:43", 1000, (me,), (Point(at + 1),), (b"user:42",))
        ),
        "call get quarantine": CODEC.encode_call(17, at, 5000, GetQuarantine(b"user:42", 2), 0),
        "reply quarantine": CODEC.encode_reply(17, GetQuarantineReply((clock,), b"ctx", me, 1, 2, 2)),
        "call decide quarantine": CODEC.encode_call(
            18, at, 5000, DecideQuarantine(b"user:42", b"ctx", b"o" * 16, True, 2, True), 0
        ),
        "call merge": CODEC.encode_call(19, at, 5000, Merge(copies[1], 2, b"o" * 16, True), 0),
        "call describe": CODEC.encode_call(21, None, 5000, Describe(("vnodes", "peers"), b"v" * 8), 0),
        "reply unchanged": CODEC.encode_reply(21, DescribeReply(b"v" * 8, 1000, None)),
        "call get events": CODEC.encode_call(20, None, 5000, GetEvents(7, 1000, 64), 0),
        "reply events": CODEC.encode_reply(20, GetEventsReply((event,), 8, 2, 900, 50, 1000)),
        "call get metrics": CODEC.encode_call(22, None, 5000, GetMetrics(), 0),
        "reply metrics": CODEC.encode_reply(
            22, GetMetricsReply(1000, 90, (0.1, 0.2), (0.0,), (lag,), (traffic,), (("gets", 5),))
        ),
        "call sample": CODEC.encode_call(23, None, 5000, Sample(5, True), 0),
        "reply sample": CODEC.encode_reply(23, SampleReply(1000, 90, (1, 0, 2), (HotKey(b"user:42", 9, 1),))),
        "call gossip": CODEC.encode_call(25, at, 500, Gossip((member, gone), b"want"), 0),
        "reply gossip": CODEC.encode_reply(25, GossipReply(b"\x02", (member,))),
        "call compare members": CODEC.encode_call(26, at, 500, CompareMembers(b"s" * 8), 0),
        "reply members compared": CODEC.encode_reply(26, CompareMembersReply((SliceFingerprints(0, b"want"),))),
        "call get members": CODEC.encode_call(27, None, 500, GetMembers(b"s" * 8, at), 0),
        "reply members page": CODEC.encode_reply(27, GetMembersReply(b"s" * 8, (member,), at)),
        "call density": CODEC.encode_call(24, None, 5000, Density(at, Point(at + 1), 8), 0),
        "reply density": CODEC.encode_reply(24, DensityReply(1000, (3, 0, 300))),
        "reply pong": CODEC.encode_reply(1, PingReply("leaving")),
        "reply values": CODEC.encode_reply(2, GetReply((b"Ada",), b"ctx", me)),
        "call get ring to join": CODEC.encode_call(30, at, 500, GetRing(joins=True), 0),
        "reply pointers, 8 bits": TOY.encode_reply(6, GetRingReply(toy, None, (toy,), (), Point(42))),
        "reply next hops": CODEC.encode_reply(4, FindNextReply(False, (Candidate(me, Via("finger", 158)),), 0.25)),
        "error": CODEC.encode_error(7, NotOwner("not mine", peer=me, after_ms=20)),
        "refusal": encode_refusal(OtherRing("another ring")),
        "goodbye": GOODBYE,
    }


@pytest.mark.parametrize("name", golden_frames())
def test_frames_have_the_golden_bytes(name: str) -> None:
    assert golden_frames()[name].hex() == json.loads(GOLDEN.read_text())[name]


# -- chunking ------------------------------------------------------------------------------------


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def frame(kind: int, body: bytes) -> bytes:
    return bytes((kind,)) + len(body).to_bytes(3, "big") + body


@given(
    st.lists(st.tuples(st.sampled_from(FrameKind), bodies), max_size=6), st.lists(st.integers(0, 10_000), max_size=12)
)
def test_frames_arrive_whole_in_any_chunking(sent: list[tuple[FrameKind, bytes]], cuts: list[int]) -> None:
    frames, received = Frames(200), []
    for chunk in cut(b"".join(frame(kind, body) for kind, body in sent), cuts):
        received += frames.feed(bytearray(chunk) if len(chunk) % 2 else chunk)
    assert received == sent
    assert all(type(body) is bytes for _, body in received)
    assert not frames.is_partial


@given(st.binary(max_size=40), st.lists(st.integers(0, 10_000), max_size=8))
def test_random_bytes_end_alike_in_any_chunking(data: bytes, cuts: list[int]) -> None:
    def outcome(chunks: list[bytes]) -> tuple[list[tuple[FrameKind, bytes]], bool] | None:
        frames, received = Frames(16), []
        try:
            for chunk in chunks:
                received += frames.feed(chunk)
        except MalformedMessage:
            return None
        return received, frames.is_partial

    assert outcome([data]) == outcome(cut(data, cuts))


def test_frame_beyond_the_limit_is_refused_by_its_prefix() -> None:
    assert Frames(1000).feed(frame(2, b"x" * 1000))
    for data in (frame(2, b"x" * 1001), frame(2, b"x" * 1001)[:4]):
        with pytest.raises(MalformedMessage, match="frame of 1001 bytes; the limit here is 1000"):
            Frames(1000).feed(data)
    frames = Frames(1000)
    assert frames.feed(b"\x02\xff\xff") == []
    with pytest.raises(MalformedMessage):
        frames.feed(b"\xff")


@pytest.mark.parametrize("kind", [0, 6, 71, 255])
def test_frame_of_an_unknown_kind_is_refused(kind: int) -> None:
    with pytest.raises(MalformedMessage, match="unknown kind of frame"):
        Frames(LIMIT).feed(bytes((kind, 0, 0, 0)))


def test_frame_in_single_bytes_arrives_whole() -> None:
    frames, body = Frames(1 << 20), b"\x5a\x00\x02\x00\x00" + bytes(1 << 17)
    data = frame(3, body)
    assert [out for i in range(len(data)) for out in frames.feed(data[i : i + 1])] == [(FrameKind.REPLY, body)]


# -- hostile bytes -----------------------------------------------------------------------------


def outcomes(body: bytes) -> None:
    """Feed a body to every decoder; each may raise only `MalformedMessage`."""
    decoders: list[Callable[[bytes], object]] = [
        decode_hello,
        decode_refusal,
        is_goodbye,
        CODEC.decode_error,
        TOY.decode_error,
        CODEC.decode_call,
        TOY.decode_call,
        *(lambda body, t=reply: CODEC.decode_reply(body, t) for reply in (PingReply, GetReply, Trace, Status)),
    ]
    for decoder in decoders:
        with suppress(MalformedMessage):
            decoder(body)


@pytest.mark.slow
@settings(max_examples=400)
@given(st.binary(max_size=120))
def test_random_bytes_raise_only_malformed_message(body: bytes) -> None:
    outcomes(body)


@pytest.mark.slow
@settings(max_examples=300)
@given(json_like)
@example([1, None, 1, [[]]])
@example([1, None, 1, [True]])
@example([1, None, 1, [1 << 63]])
@example([True, None, 1, [1]])
@example([1, None, True, [1]])
@example([1, b"short", 1, [1]])
@example([1, [], 1, [1]])
@example([1, None, 1.5, [1]])
@example([-1, None, 1, [1]])
@example([1 << 63, None, 1, [1]])
@example([1, None, BUDGET_MS_MAX + 1, [1]])
@example([1, {"0": 1}])
def test_wrong_content_raises_only_malformed_message(item: Any) -> None:
    outcomes(cbor2.dumps(item))
    outcomes(cbor2.dumps([1, None, 100, item, 0]))
    outcomes(cbor2.dumps([1, item]))


@pytest.mark.slow
@settings(max_examples=300)
@given(messages(*REQUESTS), st.data())
def test_damaged_message_raises_only_malformed_message(request: Request, data: st.DataObject) -> None:
    body = bytearray(body_of(CODEC.encode_call(9, Point(1), 100, request, 0)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    outcomes(bytes(body))
    outcomes(bytes(body[: data.draw(st.integers(0, len(body)))]))


def all_tags() -> list[int]:
    return [*range(300), 1004, 43000, 55799, 55800, 1 << 32, (1 << 64) - 1]


@pytest.mark.parametrize("content", [b"\x01", b"\x41\x01", b"\x61a", b"\x81\x01", b"\x82\x01\x02", b"\xf6"])
def test_cbor_tags_are_refused(content: bytes) -> None:
    for tag in all_tags():
        tagged = cbor2.dumps(cbor2.CBORTag(tag, 0))[:-1] + content
        with pytest.raises(MalformedMessage, match="not strict CBOR"):
            decode(tagged)
        with pytest.raises(MalformedMessage):
            CODEC.decode_call(b"\x86\x01\xf6\x01\x81\x01\x00" + tagged)  # also in an ignored field


@pytest.mark.parametrize(
    "hostile",
    {
        "nothing": b"",
        "only a head": b"\x82",
        "indefinite array": b"\x9f\x01\xff",
        "indefinite bytes": b"\x5f\x41a\xff",
        "indefinite text": b"\x7f\x61a\xff",
        "indefinite map": b"\xbf\xff",
        "a lone break": b"\xff",
        "a reserved length": b"\x1c",
        "map with a number for a key": b"\xa1\x01\x02",
        "map with an array for a key": b"\xa1\x80\x02",
        "map with a key twice": b"\xa2\x61a\x01\x61a\x02",
        "text that is not UTF-8": b"\x62\xff\xfe",
        "text with a surrogate": b"\x63\xed\xa0\x80",
        "array of 2^64 - 1": b"\x9b" + b"\xff" * 8,
        "array of 2^32": b"\x9b\x00\x00\x00\x01\x00\x00\x00\x00",
        "bytes of 2^64 - 1": b"\x5b" + b"\xff" * 8,
        "bytes of 2^40": b"\x5b\x00\x00\x01\x00\x00\x00\x00\x00",
        "text of 2^63": b"\x7b\x80" + b"\x00" * 7,
        "map of 2^40": b"\xbb\x00\x00\x01\x00\x00\x00\x00\x00",
        "100,000 arrays deep": b"\x81" * 100_000 + b"\x00",
        "100,000 tags deep": b"\xc6" * 100_000 + b"\x00",
        "100,000 maps deep": b"\xa1\x61a" * 100_000 + b"\x00",
    }.items(),
    ids=lambda item: item[0],
)
def test_hostile_items_are_malformed(hostile: tuple[str, bytes]) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            decode(hostile[1])
        outcomes(hostile[1])
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_depth_beyond_depth_max_is_refused() -> None:
    assert decode(b"\x81" * DEPTH_MAX + b"\x00")
    with pytest.raises(MalformedMessage, match="depth"):
        decode(b"\x81" * (DEPTH_MAX + 1) + b"\x00")


@given(st.binary(min_size=1, max_size=300))
@example(b"\x59\x01\x00" + bytes(256))
@example(b"\x59\x01\x00" + bytes(252))
@example(b"\x59\x01\x00")
@example(b"\x58")
@example(b"\x59")
@example(b"\x5a")
@example(b"\x5b" + bytes(7))
def test_bytes_behind_the_item_are_refused(behind: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(b"\x01" + behind)
    with pytest.raises(MalformedMessage):
        decode(b"\x59\x01\x00" + bytes(256) + behind)


LONG_HEADS = ((">BH", 0x59), (">BI", 0x5A), (">BQ", 0x5B))


@pytest.mark.parametrize("size", [*range(1, 12), 254, 255, 256, 257, 258, 259, 260, 261, 5000])
def test_zeros_behind_the_item_are_refused(size: int) -> None:
    for length in sorted({size, 256, size + 1, 0}):
        for head in (b"\x40", b"\x58%c" % (length & 255), *(struct.pack(f, h, length) for f, h in LONG_HEADS)):
            with pytest.raises(MalformedMessage):
                decode((b"\x01" + head).ljust(size + 1, b"\0"))


@pytest.mark.slow
def test_very_wide_message_is_refused() -> None:
    body = b"\x9a" + (60_000).to_bytes(4, "big") + b"\x80" * 60_000
    outcomes(body)


# -- errors inside an envelope: answered, and not fatal ----------------------------------------


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ([999], UnknownRequest),
        ([999, b"fields", [1]], UnknownRequest),
        ([-1], UnknownRequest),
        ([129], UnknownRequest),  # a reply is not a request
        ([], MalformedMessage),
        (["1"], MalformedMessage),
        (7, MalformedMessage),
        (None, MalformedMessage),
        ([32], MalformedMessage),  # no key
        ([32, "text"], MalformedMessage),  # base64 is not a key
        ([32, b""], MalformedMessage),
        ([32, b"k" * 1025], MalformedMessage),
        ([3, [b"\x11" * 19, "a:1"]], MalformedMessage),
        ([3, [b"\x11" * 21, "a:1"]], MalformedMessage),
        ([3, [5, "a:1"]], MalformedMessage),
        ([3, [b"\x11" * 20, ""]], MalformedMessage),
        ([3, {"id": b"\x11" * 20, "address": "a:1"}], MalformedMessage),
        ([16, b"\x11" * 20, "quick"], MalformedMessage),
        ([16, b"\x11" * 20, "fast", [b"\x11" * 20] * 257], MalformedMessage),
        ([2, 1], MalformedMessage),  # a number is not a bool
    ],
)
def test_wrong_request_in_a_readable_envelope_is_an_error(content: object, error: type[ChordError]) -> None:
    call = CODEC.decode_call(cbor2.dumps([77, b"\x01" * 20, 100, content, 0]))
    assert call.call_id == 77
    assert type(call.request) is error


def test_point_outside_the_circle_is_refused() -> None:
    narrow = Codec(Circle(5))  # one byte, but only 0 to 31 are points
    assert narrow.decode_call(cbor2.dumps([1, b"\x1f", 1, [1], 0])).vnode == 31
    for vnode in (b"\x20", b"\xff", b"", b"\x00\x01", "a", 5):
        assert isinstance(narrow.decode_call(cbor2.dumps([1, vnode, 1, [1], 0])).request, MalformedMessage)
    assert isinstance(narrow.decode_call(cbor2.dumps([1, None, 1, [17, b"\x20"], 0])).request, MalformedMessage)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_floats_that_are_not_finite_are_refused(bad: float) -> None:
    me = Contact(Point(1), "a:1")
    for reply in (FindNextReply(True, (), bad), ForwardReply((), (), bad)):
        with pytest.raises(MalformedMessage):
            CODEC.decode_reply(body_of(CODEC.encode_reply(1, reply)), type(reply))
    trace = Trace(Point(1), me, me, Via("start"), bad, (), (), "iterative", "classic", 0, 0, 0, 0.0, 1, Point(0), 1)
    with pytest.raises(MalformedMessage, match="Expected `float`"):
        CODEC.decode_reply(body_of(CODEC.encode_reply(1, trace)), Trace)


def test_numbers_over_64_bits_are_refused() -> None:
    with pytest.raises(MalformedMessage):
        CODEC.decode_call(b"\x85\x01\xf6\x01\x82\x18\x20\xc2\x49" + b"\x01" * 9 + b"\x00")


def test_reply_of_another_type_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="GetReply"):
        CODEC.decode_reply(body_of(CODEC.encode_reply(1, PingReply())), GetReply)


def test_random_frames_raise_only_malformed_message() -> None:
    rng = random.Random(1)
    valid = [CODEC.encode_call(1, Point(5), 100, r, 0) for r in (Ping(), Get(b"key"), GetStatus())]
    for _ in range(3000):
        data = bytearray(b"".join(rng.choices(valid, k=3)))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        frames = Frames(256)
        try:
            for chunk in cut(bytes(data), [rng.randrange(len(data)) for _ in range(3)]):
                for kind, body in frames.feed(chunk):
                    if kind is FrameKind.CALL:
                        CODEC.decode_call(body)
        except MalformedMessage:
            continue


# -- items -----------------------------------------------------------------------------------------------


def items_in(value: object) -> int:
    """Count an item and all items in it."""
    if isinstance(value, (list, tuple)):
        return 1 + sum(map(items_in, value))
    if isinstance(value, dict):
        return 1 + sum(items_in(one) for pair in value.items() for one in pair)
    return 1


def is_refused(body: bytes, items_max: int) -> bool:
    try:
        require_items(body, items_max)
    except MalformedMessage:
        return True
    return False


@pytest.mark.slow
@settings(max_examples=300)
@given(json_like)
def test_items_are_counted_without_decoding(value: object) -> None:
    body, count = cbor2.dumps(value), items_in(value)
    for items_max in range(max(1, count - 2), count + 3):
        assert is_refused(body, items_max) == (items_max < count < len(body) + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "filler",
    [
        b"\x80",
        b"\x18\xff",
        b"\x39\xff\xff",
        b"\xfb" + bytes(8),
        b"\x57" + b"\x80" * 23,
        b"\x58\x18" + b"\x80" * 24,
        b"\x59\x01\x00" + b"\x80" * 256,
        b"\x40",
        b"\xf6",
    ],
)
def test_items_of_every_form_are_counted_up_to_the_limit(filler: bytes) -> None:
    body = b"\x99\x4e\x20" + filler * 20_000
    assert not is_refused(body, 20_001)
    assert is_refused(body, 20_000)
    body = b"\x82\x5a\x00\x01\x00\x00" + b"\x80" * (1 << 16) + b"\x80"
    assert not is_refused(body, 3)
    assert is_refused(body, 2)


def test_count_of_items_stops_soon_after_the_limit() -> None:
    """The rest of a hostile frame costs no time: what follows the first items is not read."""
    for filler in (b"\x80", b"\x58\x18" + b"\x80" * 24):
        body = b"\x9a\x00\x01\x00\x00" + filler * 20_000 + b"\xff"  # no item begins with 0xff
        with pytest.raises(MalformedMessage, match="more than 100 items"):
            require_items(body, 100)


ENDS = [b"\xff", b"\x9f", b"\x5f", b"\x1c", b"\x58", b"\x59\x01", b"\x58\x20", b"\x5b" + b"\xff" * 8]


@pytest.mark.parametrize("end", ENDS)
def test_invalid_cbor_is_refused_by_the_count_of_items(end: bytes) -> None:
    assert is_refused(b"\x80" * 100 + end, 100)


def test_items_are_counted_only_in_large_frames() -> None:
    assert Frames(LIMIT).feed(frame(2, b"\x80" * (1 << 16)))
    with pytest.raises(MalformedMessage, match="more than 65536 items"):
        Frames(2 * LIMIT).feed(frame(2, b"\x9a\x00\x01\x00\x00" + b"\x80" * (1 << 16)))


@pytest.mark.slow
@settings(max_examples=300)
@given(st.binary(min_size=1, max_size=200), st.integers(1, 40))
def test_items_of_any_bytes_are_counted_or_refused(body: bytes, items_max: int) -> None:
    """The count raises no other error, and accepted CBOR has at most `items_max` items."""
    if not is_refused(body, items_max):
        try:
            value = decode(body)
        except MalformedMessage:
            return
        assert items_in(value) <= items_max
