"""Leaders and followers (course notes on sharding): one process orders the writes of a shard, and all read."""

from __future__ import annotations

from collections.abc import Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import Recording, SmallWorld, law_of_runs, law_of_worlds, value_of
from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, Send, all_of


class Write(ProcessMessage, frozen=True):
    """The leader of the shard is to write this value."""

    shard: Name
    value: str


class Apply(ProcessMessage, frozen=True):
    """The leader has written this value, as the write with this number."""

    shard: Name
    number: int
    value: str


class Replica(Process):
    """A process with a copy of all shards. It leads the shard of its own name, if there is one."""

    stable = ("writes", "reads", "begun", "logs", "early")
    shard_count: int = 2
    writes: int = 1  # that it may still begin
    reads: int = 1  # that it may still do
    begun: int = 0  # the number of its writes so far
    logs: dict[Name, list[str]] = {}  # of each shard, the writes that it has applied, in order
    early: dict[Name, dict[str, str]] = {}  # of each shard, values that cannot be applied yet, by number

    def asks(self) -> Sequence[str]:
        shards = sorted([self.me, *self.others])[: self.shard_count]
        writes = [f"write {shard}" for shard in shards if self.writes]
        return [*writes, *(f"read {shard}" for shard in shards if self.reads)]

    def on_ask(self, ask: str) -> Effects:
        what, shard = ask.split()
        if what == "read":
            self.reads -= 1
            yield Did("read", [shard, len(self.logs.get(shard, []))])
        else:
            self.writes, self.begun = self.writes - 1, self.begun + 1
            value = f"{self.me}{self.begun}"
            yield Did("write", [shard, value])
            yield from self.write(shard, value)

    def write(self, shard: Name, value: str) -> Effects:
        """Write a value, if this process leads the shard. Otherwise ask the leader to do it."""
        if self.me == shard:
            yield from self.lead(shard, value)
        else:
            yield Send(shard, Write(shard, value))

    def on_message(self, sender: Name, message: Write | Apply) -> Effects:
        if isinstance(message, Write):
            yield from self.lead(message.shard, message.value)
        else:
            yield from self.follow(message)

    def lead(self, shard: Name, value: str) -> Effects:
        """Give the write the next number of the shard. Do not wait for the followers."""
        yield from self.apply(shard, value)
        yield from self.all_others(Apply(shard, len(self.logs[shard]), value))

    def follow(self, message: Apply) -> Effects:
        """Apply a write of the leader, and its successors that are here. Keep it until all earlier writes are here."""
        early = self.early.setdefault(message.shard, {})
        early[str(message.number)] = message.value
        while (value := early.pop(str(len(self.logs.get(message.shard, [])) + 1), None)) is not None:
            yield from self.apply(message.shard, value)

    def apply(self, shard: Name, value: str) -> Effects:
        """Add a value to the copy of a shard."""
        self.logs.setdefault(shard, []).append(value)
        yield Did("apply", [shard, len(self.logs[shard])])


def all_copies_are_equal(world: SmallWorld) -> bool:
    """Return whether all writes have begun, and all copies have all of them."""
    begun = sum(process.begun for process in world.processes.values())
    logs = [process.logs for process in world.up()]
    is_complete = all(sum(map(len, log.values())) == begun and log == logs[0] for log in logs)
    return is_complete and not any(process.writes for process in world.up())


@law_of_worlds("order of the leader", ticket=0)
def order_of_the_leader(world: SmallWorld) -> str:
    """Each copy of a shard has the first writes of its leader, in the same order."""
    for process in world.processes.values():
        for shard, log in process.logs.items():
            if world.processes[shard].logs.get(shard, [])[: len(log)] != log:
                return f"the copy of {shard} at {process.me} is {', '.join(log)}"
    return ""


@law_of_runs("reads are fresh", ticket=0)
def reads_are_fresh(run: Recording) -> str:
    """A read sees every write that happened before it."""
    for read in run.dids("read"):
        shard = read.message[0]
        for write in (e for e in run.dids("write") if e.message[0] == shard and run.before(e, read)):
            if write.message[1] not in value_of(read, "logs").get(shard, []):
                return f"{read.process} does not read {write.message[1]}"
    return ""


class AppliesOnArrival(Replica):
    """A bug: a follower applies writes in the order in which they arrive."""

    def follow(self, message: Apply) -> Effects:
        return self.apply(message.shard, message.value)


class FollowerWrites(Replica):
    """A bug: a follower writes to its own copy, and tells the others."""

    def write(self, shard: Name, value: str) -> Effects:
        return self.lead(shard, value)


ENTRY = Entry(
    name="order-leader-followers",
    ticket=0,
    title="A leader per shard, with followers",
    make=all_of(Replica),
    goal=all_copies_are_equal,
    laws=(order_of_the_leader,),
    small=(2, 3),
    needs={fault: Breaks(STUCK) for fault in ("loss", "copies", "crash", "restart")},
    cost=(Cost("1 + followers", per="write", formula=lambda n: n, is_exact=False),),
    refuted=(reads_are_fresh,),
    bugs={
        "on-arrival": Altered(all_of(AppliesOnArrival), breaks="order of the leader", text="Writes overtake others."),
        "follower-writes": Altered(
            all_of(FollowerWrites), breaks="order of the leader", text="The shard would have two orders."
        ),
    },
)
