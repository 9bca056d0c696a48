"""Gossip: a node exchanges entries of its membership list with members drawn at random.

A change makes an entry hot. A node sends its hot entries to one partner per period, until three partners knew them. A
comparison of whole lists once a minute finds the entries that a node has missed.

Only a node itself announces that it is alive. Only its ring neighbours announce that it is silent or has left, because
they call it anyway. Source: Demers et al. 1987 (rumor mongering); the course notes on Dynamo.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from chord.errors import ChordError, DeadlineExceeded, InvalidRequest, OtherRing, UnknownRequest, UnknownVnode
from chord.events import PeerChanged
from chord.net.calls import Caller
from chord.net.handlers import handles
from chord.ring.context import NodeContext
from chord.ring.lookup import Lookups
from chord.ring.members import Members, contradiction, fingerprint, order, pages_of
from chord.wire.messages import (
    FINGERPRINT_BYTES,
    NEWS_MAX,
    SUM_BYTES,
    CompareMembers,
    CompareMembersReply,
    Contact,
    GetMembers,
    GetMembersReply,
    Gossip,
    GossipReply,
    MemberEntry,
    MemberState,
    Reply,
    Request,
    SliceFingerprints,
)
from chord.wire.messages.members import START_MAX

if TYPE_CHECKING:
    import random

R = TypeVar("R", bound=Reply)

PARTNERS: Final = 3
"""A node stops sending an entry when this many partners knew it already."""

QUIET_PARTNERS: Final = 6
"""The same for an entry that arrives in a quiet time.

Then the periods of other nodes have grown, and few of them call and ask for the entry.
"""

QUIET_PERIODS: Final = 4
"""The time is quiet if a node had no hot entry for this many periods."""

FIRST_COMPARISONS: Final = 4
"""A new node compares its list with several nodes, until it lacks nothing, because some may be new themselves."""

PAGE_BYTES: Final = 12 * 1024
"""Bytes of entries in one exchange, so that it stays on the control stream."""

CLIENT_PAGE_BYTES: Final = 60 * 1024
WANTED_MAX: Final = 128
COMPARISON_CALLS_MAX: Final = 256
ON_AGAIN: Final = 0.75
"""Below this share of `members_max`, a node that dropped its list keeps one again."""


class MemberGossip:
    """Keeps the membership list of one node (`NodeContext.members`) up to date by gossip.

    If the node keeps no list, this does nothing and refuses all requests.

    Args:
        host: the node context.
        lookups: looks up the ids of nodes that do not answer.
        rng: random numbers, to choose the members to gossip with.

    Attributes:
        on_hot: functions that are called when there is news to spread after a time without any.
    """

    __slots__ = (
        "_comparisons", "_has_joined", "_host", "_hot", "_hot_at", "_lookups", "_peers", "_period_s", "_returned",
        "_rng", "on_hot",
    )  # fmt: skip

    def __init__(self, host: NodeContext, lookups: Lookups, rng: random.Random) -> None:
        self._host = host
        self._peers = host.peers
        self._lookups = lookups
        self._rng = rng
        self._period_s = host.timing.gossip_s
        self._has_joined = False
        self._hot: dict[str, int] = {}  # how many partners must still know the entry
        self._hot_at = -math.inf  # when an entry was hot last
        self._returned: dict[str, None] = {}  # nodes that answer again and count as silent
        self._comparisons = FIRST_COMPARISONS  # how many are due at once
        self.on_hot: list[Callable[[], None]] = []

    # -- periodic steps -------------------------------------------------------------------------

    async def exchange(self) -> None:
        """Send the entries that are news to one other member, and take over the news in its reply.

        A new node first compares its whole list with those of some members instead.

        Concurrency: checkpoints.
        """
        members = self._refresh()
        if members is None:
            return
        if self._comparisons:
            await self.compare()
            return
        if self._returned:
            address = next(iter(self._returned))
            del self._returned[address]
            entry = members.get(address)
            await self._send(members, address, () if entry is None else (entry,))
            return
        partner = members.draw(self._rng.randrange)
        if partner is None or partner.address == self._host.address:
            await self._send(members, self._contact_of_ring())
        else:
            if not self._peers.failure_detector.is_dead(partner.address):
                error = await self._send(members, Contact(partner.vnodes[0], partner.address))
                if not isinstance(error, (OtherRing, UnknownVnode)):
                    return
            await self._check(members, partner)

    async def compare(self) -> None:
        """Compare the whole list with that of one other member. Afterwards both have the entries that they lacked.

        Concurrency: checkpoints.
        """
        members = self._refresh()
        if members is None:
            return
        partner = None if self._comparisons == FIRST_COMPARISONS else members.draw(self._rng.randrange)
        to = self._contact_of_ring()
        if partner is not None and partner.address != self._host.address:
            to = Contact(partner.vnodes[0], partner.address)
        if to is None:  # a lone node: a joiner will compare its list
            self._hot.clear()
            self._comparisons = 0
            return
        bits = members.bits
        found = await self._call(to, CompareMembers(members.sums(bits)), CompareMembersReply)
        if not isinstance(found, CompareMembersReply):
            return
        missing: dict[str, MemberEntry] = {}
        wanted: dict[bytes, None] = {}
        for piece in found.slices:
            mine, theirs = members.in_slice(bits, piece.index), _fingerprints_in(piece.fingerprints)
            missing |= {entry.address: entry for name, entry in mine.items() if name not in theirs}
            wanted |= dict.fromkeys(theirs.difference(mine))
        pages = list(pages_of(missing.values(), PAGE_BYTES))
        is_first, self._comparisons = self._comparisons > 0, max(0, self._comparisons - 1) if wanted else 0
        for _ in range(COMPARISON_CALLS_MAX):
            if not (pages or wanted):
                return
            request = Gossip(pages.pop(0) if pages else (), b"".join(list(wanted)[:WANTED_MAX]))
            reply = await self._call(to, request, GossipReply)
            if not isinstance(reply, GossipReply):
                return
            before = len(wanted)
            for entry in reply.entries:
                wanted.pop(fingerprint(entry), None)
                self._learn(members, entry, is_news=not is_first)
            if len(wanted) == before:  # the partner has these entries no longer
                wanted.clear()

    def longest_s(self) -> float:
        """Return how long the period of `exchange` may grow now, in seconds: infinity if news has been absent for long.

        While there is news, the result is 0, so that the period does not grow at all.
        """
        return math.inf if self._is_quiet() and not self._hot and not self._returned else 0.0

    # -- announcements --------------------------------------------------------------------------

    def join(self) -> None:
        """Announce in the list that this node is alive, once its vnodes are members of the ring."""
        members = self._host.members
        if members is not None:
            self._has_joined = True
            if members.get(self._host.address) is None:
                self._announce_self(members, self._start_now(), 0)

    def note(self, event: PeerChanged) -> None:
        """React to a new state of a peer in the failure detector.

        A ring neighbour that is dead or has left is announced as silent or left. A peer that answers again, but is
        listed as silent, is called soon.
        """
        members = self._host.members
        entry = None if members is None else members.get(event.address)
        if members is None or entry is None:
            return
        if event.state == "alive":
            if entry.state != "alive":
                self._hot.pop(event.address, None)
                self._returned[event.address] = None
                self._hurry()
        elif event.state == "left":  # the node itself said goodbye, and may be out of the lists already
            self._announce(members, entry, "left")
        elif event.state != "suspect" and self._is_neighbour(event.address):
            self._announce(members, entry, "silent")

    async def _check(self, members: Members, entry: MemberEntry) -> None:
        """Announce the silence of a ghost: it does not answer as a member, and its ids have other owners."""
        start = next(iter(self._host.vnodes.values())).me
        try:
            trace = await self._lookups.find(entry.vnodes[0], start)
        except ChordError:
            return
        if trace.owner.address != entry.address:
            self._announce(members, entry, "silent")

    def _announce(self, members: Members, entry: MemberEntry, state: MemberState) -> None:
        """Report the state of another node, under the count of its own last report."""
        self._learn(members, MemberEntry(entry.address, entry.start, entry.count, state))

    def _announce_self(self, members: Members, start: int, count: int) -> None:
        """Announce that this node is alive.

        Args:
            members: the list.
            start: the number of this run.
            count: the number of contradicted reports.
        """
        vnodes = tuple(sorted(self._host.vnodes))
        self._put(members, MemberEntry(self._host.address, start, count, "alive", vnodes), is_news=True)

    def _start_now(self) -> int:
        return min(max(0, self._host.wall_now_ms()) // 1000, START_MAX)

    # -- requests -------------------------------------------------------------------------------

    @handles(Gossip, takes_caller=True)
    def on_gossip(self, request: Gossip, caller: Caller) -> GossipReply:
        """Merge the caller's entries into the list, and reply with entries that the caller may lack.

        The reply also says which of the caller's entries were known here.

        Raises:
            UnknownRequest: definite; this node keeps no membership list.
            InvalidRequest: definite; a client called.
        """
        members = self._require(caller)
        known = bytearray((len(request.entries) + 7) // 8)
        reply: dict[str, MemberEntry] = {}
        own = members.get(caller.address)
        if own is not None and own.state != "alive":
            reply[own.address] = own  # the caller contradicts it
        for number, entry in enumerate(request.entries):
            if not self._learn(members, entry):
                known[number >> 3] |= 1 << (number & 7)
                mine = members.get(entry.address)
                if mine is not None and mine != entry:
                    reply[mine.address] = mine
        wanted = _fingerprints_in(request.wanted)
        if wanted:
            reply |= {entry.address: entry for entry in members if fingerprint(entry) in wanted}
        sent = {entry.address for entry in request.entries}
        for address in self._hot.keys() - sent:
            mine = members.get(address)
            if mine is not None:
                reply[address] = mine
        entries = (entry for entry in reply.values() if not (entry.address == caller.address and entry.vnodes))
        return GossipReply(bytes(known), _first_page(entries))

    @handles(CompareMembers, takes_caller=True)
    def on_compare(self, request: CompareMembers, caller: Caller) -> CompareMembersReply:
        """Return the slices of the list that differ from the caller's, with the fingerprints of their entries.

        Raises:
            UnknownRequest: definite; this node keeps no membership list.
            InvalidRequest: definite; a client called, or the number of sums is not a power of two.
        """
        members = self._require(caller)
        count, rest = divmod(len(request.sums), SUM_BYTES)
        if not count or rest or count & (count - 1):
            raise InvalidRequest(f"{len(request.sums)} bytes of sums; expected a power of two, times {SUM_BYTES}")
        bits = count.bit_length() - 1
        mine = members.sums(bits)
        differing = [
            number
            for number in range(count)
            if mine[number * SUM_BYTES :][:SUM_BYTES] != request.sums[number * SUM_BYTES :][:SUM_BYTES]
        ]
        return CompareMembersReply(
            tuple(SliceFingerprints(number, b"".join(members.in_slice(bits, number))) for number in differing)
        )

    @handles(GetMembers)
    def on_get_members(self, request: GetMembers) -> GetMembersReply:
        """Return a page of the list; a page without entries if the caller has the same version of it.

        Raises:
            UnknownRequest: definite; this node keeps no membership list.
        """
        members = self._require(None)
        version = members.version
        if version == request.since:
            return GetMembersReply(version, ())
        living = (entry for entry in members.from_point(request.after) if entry.vnodes)
        pages = pages_of(living, CLIENT_PAGE_BYTES)
        page, rest = next(pages, ()), next(pages, ())
        return GetMembersReply(version, page, self._host.circle.hash(rest[0].address.encode()) if rest else None)

    # -- inside ---------------------------------------------------------------------------------

    def _require(self, caller: Caller | None) -> Members:
        members = self._host.members
        if members is None or members.is_given_up:
            raise UnknownRequest(f"{self._host.address} keeps no membership list")
        if caller is not None and not caller.address:
            raise InvalidRequest("a client sent gossip: expected from a node")
        return members

    def _refresh(self) -> Members | None:
        """Drop old entries, and the whole list if the ring is too large; return the list, or None."""
        members = self._host.members
        if members is None or not self._has_joined:
            return None
        members.expire(trio.current_time(), self._host.timing.down_out_s)
        if members.is_given_up and self._estimate() < ON_AGAIN * self._host.limits.members_max:
            members.is_given_up, self._comparisons = False, FIRST_COMPARISONS
            self._announce_self(members, self._start_now(), 0)
        return None if members.is_given_up else members

    def _estimate(self) -> float:
        """Return the estimated number of nodes: exact in a small ring, otherwise from the gaps between vnodes."""
        vnodes = self._host.vnodes.values()
        listed = {contact.address for vnode in vnodes for contact in vnode.listed()} - {self._host.address}
        if len(listed) < self._host.constants.successors:
            return len(listed) + 1
        return 1 / sum(vnode.spacing for vnode in vnodes)

    async def _send(
        self, members: Members, to: Contact | str | None, extra: tuple[MemberEntry, ...] = ()
    ) -> ChordError | None:
        """Exchange entries with a partner: the hot ones, and further ones; return the error if it failed."""
        if to is None:  # a lone node
            self._hot.clear()
            return None
        for address in [one for one in self._hot if members.get(one) is None]:
            del self._hot[address]  # the list has dropped the entry
        hot = (entry for address in self._hot if (entry := members.get(address)) is not None)
        entries = _first_page(chain(extra, hot))
        reply = await self._call(to, Gossip(entries), GossipReply)
        if isinstance(reply, ChordError):
            if isinstance(reply, UnknownRequest) and members.alive >= ON_AGAIN * self._host.limits.members_max:
                self._give_up(members)  # the partner knows more members, too many
            return reply
        for number, entry in enumerate(entries):
            if number >> 3 < len(reply.known) and reply.known[number >> 3] >> (number & 7) & 1:
                self._cool(members, entry)
        for entry in reply.entries:
            self._learn(members, entry)
        return None

    async def _call(self, to: Contact | str, request: Request, expect: type[R]) -> R | ChordError:
        """Call a partner; return the reply or the error."""
        address = to if isinstance(to, str) else to.address
        try:
            with trio.fail_after(2 * self._peers.failure_detector.timeout(address)):
                return await self._peers.call(to, request, expect)
        except ChordError as error:
            return error
        except trio.TooSlowError:
            return DeadlineExceeded(f"{address}: no answer")

    def _contact_of_ring(self) -> Contact | None:
        """Return a vnode at random that the ring's pointers name, and that may keep a membership list."""
        without = self._host.hello_policy.without_members
        contacts = [c for c in self._host.contacts() if c.address not in without and not self._peers.is_doubtful(c)]
        return contacts[self._rng.randrange(len(contacts))] if contacts else None

    def _is_neighbour(self, address: str) -> bool:
        return any(c.address == address for vnode in self._host.vnodes.values() for c in vnode.listed())

    def _learn(self, members: Members, entry: MemberEntry, *, is_news: bool = True) -> bool:
        """Merge an entry, and contradict a wrong report about this node; return whether it is new here."""
        if entry.address != self._host.address:
            return self._put(members, entry, is_news=is_news)
        own = members.get(entry.address)
        if own is not None and order(entry) > order(own) and not self._host.is_ending:
            numbers = contradiction(entry)
            if numbers is not None:
                self._announce_self(members, *numbers)
        return False

    def _put(self, members: Members, entry: MemberEntry, *, is_news: bool) -> bool:
        if not members.learn(entry, trio.current_time()):
            if members.is_full and members.get(entry.address) is None:
                self._give_up(members)
            return False
        if is_news:
            self._heat(members, entry.address)
        return True

    def _give_up(self, members: Members) -> None:
        """Drop the list, because the ring is too large for it."""
        members.is_given_up = True
        members.clear()
        self._hot.clear()

    def _heat(self, members: Members, address: str) -> None:
        was_hot, others = bool(self._hot), members.alive - 1
        self._hot[address] = min(QUIET_PARTNERS if self._is_quiet() else PARTNERS, max(1, others))
        self._hot_at = trio.current_time()
        if not was_hot:
            self._hurry()

    def _hurry(self) -> None:
        for note in self.on_hot:
            note()

    def _cool(self, members: Members, entry: MemberEntry) -> None:
        """Count a partner that knew an entry already."""
        if members.get(entry.address) != entry or entry.address not in self._hot:
            return  # a later entry of the same node has become hot meanwhile
        self._hot[entry.address] -= 1
        self._hot_at = trio.current_time()
        if self._hot[entry.address] == 0:
            del self._hot[entry.address]

    def _is_quiet(self) -> bool:
        """Return whether the periods of this node, and probably those of others, may have grown."""
        if self._host.timing.gossip_growth_max == 1:
            return False
        return trio.current_time() - self._hot_at > QUIET_PERIODS * self._period_s


def _fingerprints_in(data: bytes) -> set[bytes]:
    return {data[at : at + FINGERPRINT_BYTES] for at in range(0, len(data), FINGERPRINT_BYTES)}


def _first_page(entries: Iterable[MemberEntry]) -> tuple[MemberEntry, ...]:
    return next(pages_of(entries, PAGE_BYTES), ())[:NEWS_MAX]
