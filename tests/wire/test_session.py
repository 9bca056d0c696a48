"""The client session without I/O: handshake, call ids, replies, goodbye."""

from __future__ import annotations

import pytest

from chord.config import Limits
from chord.errors import (
    Busy,
    ChordError,
    DeadlineExceeded,
    InvalidRequest,
    MalformedMessage,
    OtherRing,
    Overloaded,
    PeerLost,
    PeerUnreachable,
    UseBulk,
)
from chord.ids import Circle, Point
from chord.wire.codec import GOODBYE, Codec, FrameKind, Frames, decode_hello, encode_hello, encode_refusal
from chord.wire.cuts import CutNumber
from chord.wire.messages import Contact, Done, Get, GetReply, Hello, Put, Reply, StreamName
from chord.wire.session import ClientStream

ADDRESS = "127.0.0.1:9000"
CODEC = Codec(Circle(8))
REPLY = GetReply((b"v",), b"context", Contact(Point(7), ADDRESS))


def hello(stream: StreamName = "control", **changes: object) -> bytes:
    """Return a node's hello."""
    fields: dict[str, object] = {"version_min": 1, "version_max": 1, "role": "node", "bits": 8, **changes}
    return encode_hello(Hello(stream=stream, **fields))  # type: ignore[arg-type]


def opened(stream: StreamName = "control", limits: Limits | None = None) -> ClientStream:
    """Return a stream after its handshake, which ended at second 100."""
    client = ClientStream(ADDRESS, stream, limits or Limits(), CutNumber())
    client.receive(hello(stream), 100.0)
    return client


class Outcomes(list[Reply | ChordError]):
    """The outcomes of calls, in the order of their arrival."""

    def of(self, client: ClientStream, key: bytes = b"k") -> int:
        """Make a call at second 101 that may take two seconds, and return its id."""
        return client.call(None, Get(key), 2.0, 101.0, self.append)[0]


def test_session_begins_with_the_hello_of_a_client() -> None:
    ((kind, body),) = Frames(1 << 16).feed(ClientStream(ADDRESS, "bulk", Limits(), CutNumber()).hello_bytes)
    assert kind is FrameKind.HELLO
    assert decode_hello(body) == Hello(1, 1, "client", "bulk", cuts=True)


def test_hello_in_pieces_is_complete_with_its_last_byte() -> None:
    client = ClientStream(ADDRESS, "control", Limits(), CutNumber())
    for byte in hello()[:-1]:
        client.receive(bytes([byte]), 0.0)
        assert client.hello is None
    client.receive(hello()[-1:], 0.0)
    assert client.hello is not None
    assert client.hello.bits == 8


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (encode_refusal(Overloaded("no room")), Overloaded, "no room"),
        (hello(version_min=7, version_max=9), OtherRing, f"{ADDRESS}: no common version of the protocol"),
        (hello("bulk"), MalformedMessage, "asked for a control stream, was given bulk"),
        (hello(role="client"), MalformedMessage, "is not a chord node .* that of a client"),
        (hello(bits=0), MalformedMessage, "is not a chord node .* 0 bits"),
        (CODEC.encode_reply(1, REPLY), MalformedMessage, "the first frame is not a hello"),
        (b"HTTP/1.1 400 Bad Request\r\n", MalformedMessage, f"the program at {ADDRESS} is not a chord node"),
    ],
)
def test_first_frame_without_a_fitting_hello_is_an_error(data: bytes, error: type[ChordError], said: str) -> None:
    client = ClientStream(ADDRESS, "control", Limits(), CutNumber())
    with pytest.raises(error, match=said):
        client.receive(data, 0.0)


def test_stream_that_ends_before_its_hello_is_unreachable() -> None:
    error = ClientStream(ADDRESS, "control", Limits(), CutNumber()).unreachable(is_late=True)
    assert isinstance(error, PeerUnreachable)
    assert (error.is_late, error.is_taken) == (True, True)
    assert error.message == f"no answer from {ADDRESS} (connected, but received no hello)"


def test_call_carries_its_id_budget_and_time() -> None:
    client = opened()
    for expected in (1, 2):
        call_id, frame = client.call(Point(80), Get(b"k"), 1.2501, 101.5, lambda outcome: None)
        ((kind, body),) = Frames(1 << 16).feed(frame)
        call = CODEC.decode_call(body)
        assert (kind, call_id, call.call_id) == (FrameKind.CALL, expected, expected)
        assert (call.vnode, call.request) == (80, Get(b"k"))
        assert (call.budget_ms, call.sent_ms) == (1251, 1500), "the budget is rounded up"


def test_replies_in_any_order_reach_their_calls() -> None:
    client, first, second = opened(), Outcomes(), Outcomes()
    one, two = first.of(client), second.of(client)
    client.receive(CODEC.encode_error(two, Busy("later")) + CODEC.encode_reply(one, REPLY), 102.0)
    assert first == [REPLY]
    assert [type(outcome) for outcome in second] == [Busy]
    assert not client.is_waiting()


def test_frames_behind_the_hello_are_processed() -> None:
    client = ClientStream(ADDRESS, "control", Limits(), CutNumber())
    client.receive(hello() + GOODBYE, 0.0)
    assert client.hello is not None
    assert client.is_draining


def test_reply_of_another_type_fails_only_its_call() -> None:
    client, wrong, right = opened(), Outcomes(), Outcomes()
    one, two = wrong.of(client), right.of(client)
    client.receive(CODEC.encode_reply(one, Done()), 102.0)
    client.receive(CODEC.encode_reply(two, REPLY), 102.0)
    assert [type(outcome) for outcome in wrong] == [MalformedMessage]
    assert right == [REPLY]


def test_late_reply_is_ignored() -> None:
    client, outcomes = opened(), Outcomes()
    call_id = outcomes.of(client)
    client.give_up(call_id, DeadlineExceeded("late"))
    client.give_up(call_id, DeadlineExceeded("again"))
    client.receive(CODEC.encode_reply(call_id, REPLY), 104.0)
    client.receive(CODEC.encode_reply(99, REPLY), 104.0)
    assert [str(outcome) for outcome in outcomes] == ["late"]


def test_call_given_up_without_an_error_has_no_outcome() -> None:
    client, outcomes = opened(), Outcomes()
    client.give_up(outcomes.of(client))
    assert outcomes == []
    assert not client.is_waiting()


def test_goodbye_keeps_the_replies_of_open_calls() -> None:
    client, outcomes = opened(), Outcomes()
    call_id = outcomes.of(client)
    client.receive(GOODBYE, 102.0)
    assert client.is_draining
    assert client.is_waiting({call_id})
    client.receive(CODEC.encode_reply(call_id, REPLY), 103.0)
    assert outcomes == [REPLY]


def test_lost_stream_ends_every_call() -> None:
    client, outcomes = opened(), Outcomes()
    for _ in range(3):
        outcomes.of(client)
    client.end("connection reset")
    client.end("again")
    assert [type(outcome) for outcome in outcomes] == [PeerLost] * 3
    assert str(outcomes[0]) == f"the connection to {ADDRESS} was lost (connection reset)"
    assert outcomes[0] is not outcomes[1], "each caller has its own error object"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (hello(), "a second hello"),
        (encode_refusal(Overloaded("too many")), "refused by the peer: too many"),
        (b"\x07\x00\x00\x01\x00", "unknown kind of frame"),
        (b"\x03\x00\x00\x01\x00", "the envelope is not an array"),
    ],
)
def test_invalid_frame_ends_the_stream(data: bytes, said: str) -> None:
    client = opened()
    with pytest.raises(ChordError, match=said):
        client.receive(data, 102.0)


def test_request_too_large_for_its_stream_is_not_sent() -> None:
    large, huge = Put(b"k", b"v" * 20_000, b"o" * 16), Put(b"k", b"v" * 200_000, b"o" * 16)
    client = opened()
    with pytest.raises(UseBulk):
        client.call(None, large, 1.0, 101.0, lambda outcome: None)
    assert not client.is_waiting()
    small = Limits(frame_bulk_bytes_max=128 * 1024, record_bytes_max=64 * 1024)
    bulk = opened("bulk", small)
    bulk.call(None, large, 1.0, 101.0, lambda outcome: None)
    with pytest.raises(InvalidRequest, match="the limit is"):
        bulk.call(None, huge, 1.0, 101.0, lambda outcome: None)


def test_bulk_stream_takes_large_frames_after_the_hello() -> None:
    client, outcomes = opened("bulk"), Outcomes()
    call_id = outcomes.of(client)
    reply = GetReply((b"v" * 500_000,), b"", REPLY.owner)
    client.receive(CODEC.encode_reply(call_id, reply), 102.0)
    assert outcomes == [reply]
