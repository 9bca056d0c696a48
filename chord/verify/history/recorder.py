"""Writes the history of a run as it happens: simulations and benchmarks wrap their operations in this.

    recorder = Recorder(clock=trio.current_time, write=file.write)
    call = recorder.put("client 1", "key", "value")
    ...                        # ask the store
    call.ok()                  # or fail(): it did not happen; or unknown(): nobody knows
    recorder.finish()
"""

from __future__ import annotations

from collections.abc import Callable

from chord.verify.history.format import Kind, Name, Operation, State, Status, Value, encode

TIME_DECIMALS = 9


class Recorder:
    """Turns operations into lines, each when it ends. It keeps no more than what is under way.

    Times are seconds since the recorder was made. Rounding keeps their order, so the same run writes the same bytes.

    Args:
        clock: seconds, never going back; one clock for all clients of a history.
        write: told each line, with its end.
    """

    def __init__(self, clock: Callable[[], float], write: Callable[[bytes], object]) -> None:
        self._clock = clock
        self._write = write
        self._epoch_s = clock()
        self._calls: dict[int, Call] = {}
        self._begun = 0
        self._written = 0

    def put(self, client: Name, key: Name, value: Value) -> Call:
        """A put begins."""
        return self._begin(client, key, "put", None, value)

    def get(self, client: Name, key: Name) -> Call:
        """A get begins."""
        return self._begin(client, key, "get", None, None)

    def cas(self, client: Name, key: Name, old: State, new: Value) -> Call:
        """A compare-and-set begins; an old of None is "not found"."""
        return self._begin(client, key, "cas", old, new)

    def delete(self, client: Name, key: Name) -> Call:
        """A delete begins."""
        return self._begin(client, key, "del", None, None)

    def finish(self) -> None:
        """What has not ended never will, as far as this history knows: write it down as unknown."""
        for call in list(self._calls.values()):
            self._end(call, "unknown", (), None)

    def _begin(self, client: Name, key: Name, kind: Kind, old: State, new: State) -> Call:
        self._begun += 1
        call = Call(self, self._begun, Operation(0, client, key, kind, "unknown", self._now_s(), None, old, new))
        self._calls[call.number] = call
        return call

    def _end(self, call: Call, status: Status, found: tuple[Value, ...], end_s: float | None) -> None:
        if self._calls.pop(call.number, None) is None:
            raise RuntimeError(f"{call.begun} has already ended")
        self._written += 1
        begun = call.begun
        operation = Operation(
            self._written, begun.client, begun.key, begun.kind, status, begun.start_s, end_s, begun.old, begun.new,
            found,
        )
        self._write(encode(operation) + b"\n")

    def _now_s(self) -> float:
        return round(self._clock() - self._epoch_s, TIME_DECIMALS)


class Call:
    """An operation under way. End it once."""

    def __init__(self, recorder: Recorder, number: int, begun: Operation) -> None:
        self._recorder = recorder
        self.number = number
        self.begun = begun

    def ok(self, *found: Value) -> None:
        """It was done.

        Args:
            found: what a get was given: nothing where the key is not there, one value, or all siblings.
        """
        if found and self.begun.is_write:
            raise ValueError(f"a {self.begun.kind} finds nothing")
        self._end("ok", found)

    def fail(self) -> None:
        """It certainly did not happen, and never will."""
        self._end("fail")

    def unknown(self) -> None:
        """It may have happened, or may yet."""
        self._end("unknown")

    def _end(self, status: Status, found: tuple[Value, ...] = ()) -> None:
        self._recorder._end(self, status, found, self._recorder._now_s())
