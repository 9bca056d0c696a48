"""A world: processes, the messages between them, timers and faults. Its state is bytes."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Iterable
from hashlib import blake2b
from itertools import combinations
from typing import Any, Literal, TypeAlias, cast, get_type_hints

import msgspec

from chord.gallery.process import Did, Effect, Effects, Machine, Name, Process, ProcessMessage, Send, Set, Unset
from chord.gallery.recording import Recording, What

Order: TypeAlias = Literal["any", "fifo"]
"""The order of a channel: messages arrive in any order, or in the order in which they were sent."""

FINGERPRINT_BYTES = 16


class FaultBudget(msgspec.Struct, frozen=True, array_like=True):
    """How often each fault may occur in one run.

    Attributes:
        lose: the number of messages that may be lost.
        double: the number of messages that may arrive twice.
        crash: the number of crashes of processes.
        restart: the number of restarts of crashed processes, with their stable fields.
    """

    lose: int = 0
    double: int = 0
    crash: int = 0
    restart: int = 0


class Parcel(msgspec.Struct, frozen=True, array_like=True):
    """A message in transit.

    Attributes:
        message: the message.
        mark: the number of the send among the events of its process; 0 without a recording.
    """

    message: Any
    mark: int = 0


class SmallWorld(msgspec.Struct, array_like=True):
    """The state of all processes, and of everything between them.

    Attributes:
        processes: all processes by name, also those that have crashed.
        channels: the messages in transit, by `sender→receiver`. A channel without order is sorted.
        timers: by process, the names of the timers that are set, sorted.
        down: the names of the processes that have crashed, sorted.
        faults: the faults that may still occur.
    """

    processes: dict[Name, Any]
    channels: dict[str, list[Any]]
    timers: dict[Name, list[str]]
    down: list[Name]
    faults: FaultBudget

    def up(self) -> list[Any]:
        """Return the processes that have not crashed."""
        return [process for name, process in self.processes.items() if name not in self.down]

    def in_transit(self) -> list[ProcessMessage]:
        """Return all messages that were sent, and have neither arrived nor been lost."""
        return [parcel.message for parcels in self.channels.values() for parcel in parcels]


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One possible step of a world.

    Attributes:
        what: the kind of step.
        process: the process that takes it. For a lost or doubled message, its receiver.
        of: the sender of the message, the ask, the timer, or the machines that move, separated by commas.
        place: the index of the message in its channel, from 0.
    """

    what: Literal["receive", "ask", "timer", "move", "lose", "double", "crash", "restart"]
    process: Name
    of: str = ""
    place: int = 0


class Taken(msgspec.Struct, frozen=True):
    """One effect of a step: the process that yielded it, and the parcel that it sent. None: it sent no message."""

    process: Name
    effect: Effect
    parcel: Parcel | None = None


class System:
    """The fixed part of a world: its codec and its rules.

    Args:
        processes: the processes at the start.
        order: the order of all channels.
        faults: the faults that may occur.
        at_once: any set of machines may move in one step; default: one machine.
    """

    def __init__(
        self,
        processes: Iterable[Process],
        order: Order = "any",
        faults: FaultBudget | None = None,
        at_once: bool = False,
    ) -> None:
        self.first = {process.me: process for process in processes}
        self.names = tuple(self.first)
        self.order = order
        self.faults = faults or FaultBudget()
        self.at_once = at_once
        self.has_machines = any(isinstance(process, Machine) for process in self.first.values())
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self._decoder = _decoder_of(frozenset(map(type, self.first.values())))

    # -- states -------------------------------------------------------------------------------------

    def start(self, recording: Recording | None = None, taken: list[Taken] | None = None) -> SmallWorld:
        """Return a new world, in which all processes have started.

        Args:
            recording: gets the events; None: record nothing.
            taken: gets the effects of the starts; None: drop them.
        """
        taken = [] if taken is None else taken
        world = SmallWorld({}, {}, {}, [], self.faults)
        world.processes = {name: copy.deepcopy(process) for name, process in self.first.items()}
        for name in self.names:
            self._record(recording, 0.0, name, "start")
            self._run(world, name, world.processes[name].on_start(), recording, 0.0, taken)
        return world

    def encode(self, world: SmallWorld) -> bytes:
        """Return a world as bytes. Equal worlds have equal bytes."""
        return self._encoder.encode(world)

    def decode(self, state: bytes) -> SmallWorld:
        """Return the world that `encode` turned into these bytes."""
        return cast(SmallWorld, self._decoder.decode(state))

    def fingerprint(self, state: bytes, recording: Recording | None = None) -> bytes:
        """Return a digest (16 bytes) of a world's bytes and, with a recording, of the history of each process."""
        digest = blake2b(state, digest_size=FINGERPRINT_BYTES)
        if recording is not None:
            digest.update(self._encoder.encode(recording.histories()))
        return digest.digest()

    # -- steps --------------------------------------------------------------------------------------

    def choices(self, world: SmallWorld) -> list[Choice]:
        """Return every step that is possible now, in a fixed order."""
        found: list[Choice] = []
        faults = world.faults
        for channel, parcels in sorted(world.channels.items()):
            sender, receiver = channel.split("→")
            distinct = [p for p in range(len(parcels)) if p == 0 or not _is_same(parcels[p], parcels[p - 1])]
            first = distinct[:1] if self.order == "fifo" else distinct
            found += [Choice("receive", receiver, sender, place) for place in first]
            found += [Choice("lose", receiver, sender, place) for place in distinct if faults.lose]
            found += [Choice("double", receiver, sender, place) for place in distinct if faults.double]
        for name in self.names:
            if name in world.down:
                if faults.restart:
                    found.append(Choice("restart", name))
                continue
            found += [Choice("ask", name, ask) for ask in world.processes[name].asks()]
            found += [Choice("timer", name, timer) for timer in world.timers.get(name, ())]
            if faults.crash:
                found.append(Choice("crash", name))
        return found + self.moves(world) if self.has_machines else found

    def moves(self, world: SmallWorld) -> list[Choice]:
        """Return the possible moves of machines: of each one with an enabled rule, or with `at_once` of each set."""
        machines = [p for p in world.up() if isinstance(p, Machine)]
        enabled = [p.me for p in machines if p.rule(world.processes) is not None]
        most = len(enabled) if self.at_once else min(1, len(enabled))
        groups = (group for size in range(1, most + 1) for group in combinations(enabled, size))
        return [Choice("move", group[0], ",".join(group)) for group in groups]

    def take(
        self, world: SmallWorld, choice: Choice, recording: Recording | None = None, at: float = 0.0
    ) -> list[Taken]:
        """Take one step: change the world, and return the effects in their order.

        Args:
            world: the world, which changes.
            choice: the step; it must be possible in this world.
            recording: gets the events; None: record nothing.
            at: the time of the events: virtual seconds, or in a search the number of the step.
        """
        taken: list[Taken] = []
        name, of = choice.process, choice.of
        process = world.processes[name]
        if choice.what == "receive":
            parcel = self._pull(world, of, name, choice.place)
            if name in world.down:
                self._record(recording, at, name, "lost", of, parcel.message, parcel.mark)
            else:
                self._record(recording, at, name, "receive", of, parcel.message, parcel.mark)
                self._run(world, name, process.on_message(of, parcel.message), recording, at, taken)
        elif choice.what == "ask":
            self._record(recording, at, name, "ask", of)
            self._run(world, name, process.on_ask(of), recording, at, taken)
        elif choice.what == "timer":
            self._unset(world, name, of)
            self._record(recording, at, name, "timer", of)
            self._run(world, name, process.on_timer(of), recording, at, taken)
        elif choice.what == "move":
            moved = {me: world.processes[me].rule(world.processes) for me in of.split(",")}
            world.processes.update(moved)
            for me in moved:
                self._record(recording, at, me, "move")
                self._run(world, me, (), recording, at, taken)
        else:
            self._fail(world, choice, recording, at, taken)
        return taken

    def _fail(
        self, world: SmallWorld, choice: Choice, recording: Recording | None, at: float, taken: list[Taken]
    ) -> None:
        name, of, faults = choice.process, choice.of, world.faults
        if choice.what == "lose":
            world.faults = msgspec.structs.replace(faults, lose=faults.lose - 1)
            parcel = self._pull(world, of, name, choice.place)
            self._record(recording, at, name, "lost", of, parcel.message, parcel.mark)
        elif choice.what == "double":
            world.faults = msgspec.structs.replace(faults, double=faults.double - 1)
            parcel = world.channels[f"{of}→{name}"][choice.place]
            self._record(recording, at, name, "doubled", of, parcel.message, parcel.mark)
            self._push(world, of, name, parcel)
        elif choice.what == "crash":
            world.faults = msgspec.structs.replace(faults, crash=faults.crash - 1)
            old, new = world.processes[name], copy.deepcopy(self.first[name])
            for field in old.stable:
                setattr(new, field, getattr(old, field))
            world.processes[name] = new
            world.timers.pop(name, None)
            world.down = sorted([*world.down, name])
            self._record(recording, at, name, "crash")
        elif choice.what == "restart":
            world.faults = msgspec.structs.replace(faults, restart=faults.restart - 1)
            world.down.remove(name)
            self._record(recording, at, name, "restart")
            self._run(world, name, world.processes[name].on_start(), recording, at, taken)

    def _run(
        self,
        world: SmallWorld,
        name: Name,
        effects: Effects,
        recording: Recording | None,
        at: float,
        taken: list[Taken],
    ) -> None:
        process = world.processes[name]
        for effect in effects:
            parcel = None
            if recording is not None:
                recording.note_state(process)
            if isinstance(effect, Send):
                mark = self._record(recording, at, name, "send", effect.to, effect.message)
                parcel = Parcel(effect.message, mark)
                self._push(world, name, effect.to, parcel)
            elif isinstance(effect, Set):
                timers = world.timers.setdefault(name, [])
                if effect.timer not in timers:
                    timers.append(effect.timer)
                    timers.sort()
            elif isinstance(effect, Unset):
                self._unset(world, name, effect.timer)
            elif isinstance(effect, Did):
                self._record(recording, at, name, "did", effect.what, effect.value)
            if recording is not None:
                recording.note_state(process)
            taken.append(Taken(name, effect, parcel))
        if recording is not None:
            recording.note_state(process)

    def _push(self, world: SmallWorld, sender: Name, receiver: Name, parcel: Parcel) -> None:
        parcels = world.channels.setdefault(f"{sender}→{receiver}", [])
        parcels.append(parcel)
        if self.order == "any" and len(parcels) > 1:
            parcels.sort(key=self._encoder.encode)

    def _pull(self, world: SmallWorld, sender: Name, receiver: Name, place: int) -> Parcel:
        channel = f"{sender}→{receiver}"
        parcel: Parcel = world.channels[channel].pop(place)
        if not world.channels[channel]:
            del world.channels[channel]
        return parcel

    def _unset(self, world: SmallWorld, name: Name, timer: str) -> None:
        timers = world.timers.get(name, [])
        if timer in timers:
            timers.remove(timer)
            if not timers:
                del world.timers[name]

    def _record(
        self, recording: Recording | None, at: float, process: Name, what: What, with_: str = "", message: Any = None,
        mark: int = 0,
    ) -> int:  # fmt: skip
        return 0 if recording is None else recording.add(at, process, what, with_, message, mark)


def _is_same(one: Parcel, other: Parcel) -> bool:
    return one.mark == other.mark and one.message == other.message


@functools.cache  # a search may have thousands of starts
def _decoder_of(kinds: frozenset[type[Process]]) -> msgspec.msgpack.Decoder[Any]:
    """Return the decoder for worlds of these kinds of processes, with the messages that they receive."""
    ordered = sorted(kinds, key=lambda kind: kind.__qualname__)
    messages = sorted({hint for kind in ordered for hint in _messages_of(kind)}, key=str)
    process: Any = functools.reduce(operator.or_, ordered)
    message: Any = functools.reduce(operator.or_, messages) if messages else Any
    fields = [("message", message), ("mark", int)]
    parcel: Any = msgspec.defstruct("Parcel", fields, bases=(Parcel,), frozen=True, array_like=True)
    parts = [
        ("processes", dict[Name, process]),
        ("channels", dict[str, list[parcel]]),
        ("timers", dict[Name, list[str]]),
        ("down", list[Name]),
        ("faults", FaultBudget),
    ]
    return msgspec.msgpack.Decoder(msgspec.defstruct("SmallWorld", parts, bases=(SmallWorld,), array_like=True))


def _messages_of(kind: type[Process]) -> list[Any]:
    """Return the messages in the annotation of `on_message`."""
    hint = get_type_hints(kind.on_message)["message"]
    return [] if hint is Any else list(getattr(hint, "__args__", (hint,)))
