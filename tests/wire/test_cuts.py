"""The number of the newest cut: in frames, in hellos, and on both sides."""

from __future__ import annotations

import random

import cbor2
import pytest

from chord.config import Limits
from chord.errors import MalformedMessage, NotFound
from chord.ids import Circle
from chord.wire.codec import PREFIX_BYTES, Codec, cut_in, decode_hello, encode_hello, encode_refusal, open_envelope
from chord.wire.cuts import CUT_MAX, CutNumber, began_ms_of, next_number
from chord.wire.messages import Done, Hello, Ping
from chord.wire.session import ClientStream

CODEC = Codec(Circle(160))
BITS = {"bits": 160, "role": "node", "version_min": 1, "version_max": 9, "stream": "control"}


def test_frames_without_a_cut_have_no_number() -> None:
    assert CODEC.encode_call(1, None, 5, Ping(), 7, 0) == CODEC.encode_call(1, None, 5, Ping(), 7)
    assert len(cbor2.loads(CODEC.encode_call(1, None, 5, Ping(), 7)[PREFIX_BYTES:])) == 5
    assert len(cbor2.loads(CODEC.encode_reply(1, Done())[PREFIX_BYTES:])) == 2
    assert encode_hello(Hello(**BITS))[PREFIX_BYTES:][0] == 0x80 + 13


@pytest.mark.parametrize("number", [1, 77, CUT_MAX])
def test_frames_bring_the_number_back(number: int) -> None:
    call = CODEC.decode_call(CODEC.encode_call(1, None, 5, Ping(), 7, number)[PREFIX_BYTES:])
    assert (call.request, call.sent_ms, call.cut) == (Ping(), 7, number)
    for frame in (CODEC.encode_reply(4, Done(), number), CODEC.encode_error(4, NotFound("x"), number)):
        assert cut_in(open_envelope(frame[PREFIX_BYTES:], 2), 2) == number
    assert decode_hello(encode_hello(Hello(**BITS, cuts=True))[PREFIX_BYTES:]).cuts


@pytest.mark.parametrize("number", [-1, CUT_MAX + 1, "1", None])
def test_number_out_of_range_is_malformed(number: object) -> None:
    with pytest.raises(MalformedMessage):
        CODEC.decode_call(cbor2.dumps([1, None, 1, [1], 7, number]))


def test_higher_number_cuts_once() -> None:
    made: list[int] = []

    def cut(number: int) -> int:
        made.append(number)
        return number if number < 9 else cuts.number

    cuts = CutNumber(cut)
    for number in (0, 5, 5, 3, 9, 6):
        cuts.see(number)
    assert (made, cuts.number) == ([5, 9, 6], 6)


def test_next_number_is_higher_and_differs_between_commands() -> None:
    numbers = {next_number(100, 5, random.Random(seed)) for seed in range(20)}
    assert min(numbers) > 100
    assert len(numbers) > 15
    assert next_number(max(numbers), 5, random.Random(1)) > max(numbers)
    assert {began_ms_of(number) for number in numbers} == {5}
    assert next_number(CUT_MAX, 1 << 62, random.Random(1)) <= CUT_MAX


def opened(*, carries: bool) -> tuple[ClientStream, CutNumber]:
    cuts = CutNumber()
    stream = ClientStream("n:1", "control", Limits(), cuts)
    stream.receive(encode_hello(Hello(**BITS, cuts=carries)), 0.0)
    return stream, cuts


def number_in(frame: bytes) -> int:
    return CODEC.decode_call(frame[PREFIX_BYTES:]).cut


@pytest.mark.parametrize("carries", [True, False])
def test_client_carries_the_number_to_peers_that_take_it(carries: bool) -> None:
    stream, cuts = opened(carries=carries)
    seen_by_callback: list[int] = []
    call_id, first = stream.call(None, Ping(), 1.0, 0.0, lambda reply: seen_by_callback.append(cuts.number))
    assert number_in(first) == 0
    stream.receive(CODEC.encode_error(call_id, NotFound("x"), 9), 0.0)
    assert seen_by_callback == [9]
    assert number_in(stream.call(None, Ping(), 1.0, 0.0, lambda reply: None)[1]) == (9 if carries else 0)


def test_refusal_has_no_number() -> None:
    assert len(open_envelope(encode_refusal(NotFound("x"))[PREFIX_BYTES:], 2)) == 2
