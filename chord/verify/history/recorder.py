"""Recorder: writes the history of a run as it happens.

Simulations and benchmarks wrap their operations in it:

    recorder = Recorder(clock=trio.current_time, write=file.write)
    call = recorder.put("client 1", "key", "value")
    ...                        # call the store
    call.ok()                  # or call.fail(), or call.unknown()
    recorder.finish()
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chord.verify.history.format import HistoryValue, Name, Operation, OperationKind, OperationStatus, State, encode

TIME_DECIMALS = 9


class Recorder:
    """A recorder of a history, which writes the line of each operation when it ends.

    The recorder keeps only operations that are in progress. Times are seconds since the recorder was made, rounded to
    nanoseconds. Rounding keeps their order, so the same run writes the same bytes.

    Args:
        clock: returns seconds and never goes back. All clients of a history share one clock.
        write: called with each line, newline included.
    """

    def __init__(self, clock: Callable[[], float], write: Callable[[bytes], object]) -> None:
        self._clock = clock
        self._write = write
        self._epoch_s = clock()
        self._calls: dict[int, RecordedCall] = {}
        self._begun = 0
        self._written = 0

    def put(self, client: Name, key: Name, value: HistoryValue) -> RecordedCall:
        """Begin to record a put; end it by a method of the returned call."""
        return self._begin(client, key, "put", None, value)

    def get(self, client: Name, key: Name) -> RecordedCall:
        """Begin to record a get; end it by a method of the returned call."""
        return self._begin(client, key, "get", None, None)

    def cas(self, client: Name, key: Name, old: State, new: HistoryValue) -> RecordedCall:
        """Begin to record a compare-and-set; end it by a method of the returned call.

        An `old` of None stands for "not found".
        """
        return self._begin(client, key, "cas", old, new)

    def delete(self, client: Name, key: Name) -> RecordedCall:
        """Begin to record a delete; end it by a method of the returned call."""
        return self._begin(client, key, "del", None, None)

    def finish(self) -> None:
        """End the operations in progress as unknown, and write them without an end time."""
        for call in list(self._calls.values()):
            self._end(call, "unknown", (), None)

    def _begin(self, client: Name, key: Name, kind: OperationKind, old: State, new: State) -> RecordedCall:
        self._begun += 1
        begun = Operation(0, client, key, kind, "unknown", self._now_s(), None, old, new)
        call = RecordedCall(self, self._begun, begun)
        self._calls[call.number] = call
        return call

    def _end(
        self, call: RecordedCall, status: OperationStatus, found: tuple[HistoryValue, ...], end_s: float | None
    ) -> None:
        if self._calls.pop(call.number, None) is None:
            raise RuntimeError(f"{call.begun} has already ended")
        self._written += 1
        line = self._written
        operation = msgspec.structs.replace(call.begun, line=line, status=status, end_s=end_s, found=found)
        self._write(encode(operation) + b"\n")

    def _now_s(self) -> float:
        return round(self._clock() - self._epoch_s, TIME_DECIMALS)


class RecordedCall:
    """An operation in progress. End it exactly once, with `ok`, `fail` or `unknown`.

    `Recorder.finish` also ends it. Ending an operation that has ended raises RuntimeError.

    Attributes:
        number: how many operations its recorder had begun, with this one.
        begun: the operation as it was begun: without an end, with status unknown, and line 0 instead of its line.
    """

    def __init__(self, recorder: Recorder, number: int, begun: Operation) -> None:
        self._recorder = recorder
        self.number = number
        self.begun = begun

    def ok(self, *found: HistoryValue) -> None:
        """End the operation as done, now.

        Args:
            *found: the values that a get returned: none if the key was not found, one value, or all siblings.

        Raises:
            ValueError: the operation is a write, and values were given.
            RuntimeError: the operation has already ended.
        """
        if found and self.begun.is_write:
            raise ValueError(f"a {self.begun.kind} returns no values")
        self._end("ok", found)

    def fail(self) -> None:
        """End the operation as failed: it did not happen and never will.

        Raises:
            RuntimeError: the operation has already ended.
        """
        self._end("fail")

    def unknown(self) -> None:
        """End the operation as unknown: it may have happened, or may still happen.

        Raises:
            RuntimeError: the operation has already ended.
        """
        self._end("unknown")

    def _end(self, status: OperationStatus, found: tuple[HistoryValue, ...] = ()) -> None:
        self._recorder._end(self, status, found, self._recorder._now_s())
