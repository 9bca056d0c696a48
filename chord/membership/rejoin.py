"""Rejoin: how a vnode comes back to its ring after a restart.

If a ring is running, that ring decides what became of the vnode's place. The stored pointers count only if no known
node is a member.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import trio

from chord.errors import ChordError, DuplicateId, OtherRing, PeerUnreachable, UnknownVnode, unwrapped
from chord.membership.join import FATAL, LastTime, Membership
from chord.ring.ownership import Remembered
from chord.ring.vnode import Vnode
from chord.wire.messages import Contact, Ping, PingReply

EAGER_LOOKS = 2  # self-lookups in every round after a restart, until this many have changed nothing


class Rejoin:
    """Brings one vnode back into its ring after a restart.

    Args:
        vnode: the vnode.
        membership: joins the vnode to the ring, if it must join anew.
    """

    __slots__ = ("_host", "_membership", "_peers", "_ring", "_vnode")

    def __init__(self, vnode: Vnode, membership: Membership) -> None:
        self._vnode = vnode
        self._ring = vnode.ring
        self._host = vnode.host
        self._peers = vnode.host.peers
        self._membership = membership

    async def resume(
        self,
        last: LastTime,
        known: list[Contact | str],
        named: Collection[str] = (),
        former: str | None = None,
    ) -> None:
        """Bring the vnode back, by the pointers that it had before the restart or by a new join.

        If a known node replies as a member, the vnode joins through that node. If none does within `resume_s`, the
        vnode takes its stored pointers to those nodes that reply. A vnode that owned no arc, or has no pointers because
        it was not a member yet, can only join. It waits for a member without limit. This method never starts a new
        ring.

        Args:
            last: the vnode's place before the restart.
            known: vnodes and addresses of nodes that may be members.
            named: the addresses among `known` that the operator gave to join by. Until `resume_s` is over, each of them
                is waited for, even if another node replies as a member.
            former: the address of this node before the restart. If it differs from the present one, it is waited for,
                too. This node may run on a copy of a data directory.

        Raises:
            OtherRing: definite; the ring does not take the node back, or a named node is of another ring.
            DuplicateId: definite; a member stands at this vnode's id, or a node in any state has it at the former
                address.

        Concurrency: checkpoints.
        """
        self._vnode.state = "resuming"
        self._membership.last = last
        boundary = last.before[0] if last.before and last.before[0].id == last.start else None
        self._vnode.ownership.last = Remembered(last.start, boundary, last.marks)
        asked: list[Contact | str] = [*last.successors, *([last.predecessor] if last.predecessor else []), *known]
        asked = [c for c in asked if (c if isinstance(c, str) else c.address) != self._host.address]
        returning: dict[str, None] = {}
        if former == self._host.address:
            former = None
        states = await self._states_of(asked, named, returning, former) if asked else {}
        members = [address for address, state in states.items() if state in ("member", "leaving")]
        has_gone_on = any(address not in returning for address in members)  # otherwise they were away too
        self._vnode.has_met_quorum = has_gone_on
        silent = self._remember(last.successors, states)
        # Without pointers it would be alone, as a member that cannot find the places of the others.
        can_only_join = last.start is None or (not last.successors and last.start != self._vnode.id and bool(asked))
        while members or can_only_join:
            others = [*members, *(asked or known)]
            if len(self._host.vnodes) > 1:  # another vnode of this node may be the only member
                others.append(self._host.address)
            if await self._has_joined(others, [] if can_only_join else asked):
                for contact in self._ring.successors:
                    if contact in silent:  # most are only slow to answer
                        self._peers.passive.forget(contact.id)
                return
            states = await self._states_of(asked, (), {}, None)  # a stalled network may have hidden the members
            members = [address for address, state in states.items() if state in ("member", "leaving")]
        self._vnode.answered = tuple(states)
        living = [c for c in last.successors if c.address in states or c.id in self._host.vnodes]
        self._host.tell(self._ring.resume(last.predecessor, living or [self._vnode.me]))
        for contact in last.successors:
            if contact not in living and not self._peers.is_known_to_have_left(contact):
                self._peers.passive.add(contact, trio.current_time())
                self._vnode.preference_list.became_unreachable(contact, trio.current_time())
        own = self._vnode.ownership
        if own.start is None and last.start is not None:
            self._host.tell(own.resume(last.start, last.before, last.epoch))
        self._vnode.mark_only_copies(last.successors)
        self._vnode.eager_looks = EAGER_LOOKS
        await self._membership.announce()

    def _remember(self, successors: tuple[Contact, ...], states: dict[str, str]) -> set[Contact]:
        """Put stored successors on the passive list until the lists name them again.

        Without them, a write could need fewer nodes. The stored pointers may be older than the death of a successor. If
        its place has expired since, the members report it no longer. If it is about to return, it joins.

        Args:
            successors: the stored successors.
            states: the states of the nodes that have answered, by address.

        Returns:
            The successors that were put on the list and have not answered.
        """
        silent = set()
        for contact in successors:
            state, is_listed = states.get(contact.address), contact.id in self._peers.passive
            has_left = state not in ("member", "resuming") and self._peers.is_known_to_have_left(contact)
            if contact.address == self._host.address or state == "leaving" or has_left:
                continue
            self._peers.passive.add(contact, trio.current_time())
            if state is None and not is_listed:
                silent.add(contact)
        return silent

    async def _has_joined(self, others: list[Contact | str], asked: list[Contact | str]) -> bool:
        """Join through other nodes, unless all members are gone.

        A member that replied may have stopped since. Then all other nodes may wait to join, as this vnode does.

        Args:
            others: the contacts to join through.
            asked: the nodes to watch. If none of them is a member any more, the join is given up. If empty, the vnode
                can only join.

        Returns:
            Whether this vnode is a member now.

        Raises:
            OtherRing, DuplicateId: see `Membership.join`.
        """
        refusal: ChordError | None = None
        with unwrapped():
            async with trio.open_nursery() as nursery:
                if asked:
                    nursery.start_soon(self._until_no_member, asked, nursery.cancel_scope)
                try:
                    await self._membership.join(others)
                except FATAL as error:  # a group, with the end of another vnode's attempt, would hide it
                    refusal = error
                nursery.cancel_scope.cancel()
        if refusal is not None:
            raise refusal
        return self._ring.is_member

    async def _until_no_member(self, asked: list[Contact | str], scope: trio.CancelScope) -> None:
        """Cancel a join if none of these nodes replies as a member for `resume_s`.

        A member that is leaving counts, too.

        Args:
            asked: the nodes to ask, again and again.
            scope: encloses the join.
        """
        while True:
            await trio.sleep(self._host.jitter(self._host.timing.resume_s))
            states: dict[str, str] = {}
            with suppress(*FATAL):  # the join gets the same error
                states = await self._states_of(asked, (), {}, None)
            if not {"member", "leaving"}.intersection(states.values()):
                scope.cancel()
                return

    async def _states_of(
        self, contacts: list[Contact | str], named: Collection[str], returning: dict[str, None], former: str | None
    ) -> dict[str, str]:
        """Return the state of each node that replies, by address; see `PingReply`.

        All nodes are asked at once, and again until one replies as a member or `resume_s` is over.

        Args:
            contacts: the nodes to ask.
            named: the addresses that the operator gave. Each of them is waited for, even if another node is a member.
            returning: receives the nodes that are no evidence of writes while this vnode was away. Such a node was
                itself coming back when it was asked, or had met no quorum since its start (`PingReply.has_met_quorum`).
            former: see `resume`; None if the address of this node is the same.

        Raises:
            OtherRing: definite; no node replied as part of the ring, or a named node is of another ring. A node of
                another ring at `former` is no reason, because the address may belong to another machine by now.
            DuplicateId: definite; no node replied as part of the ring, or the node at `former` has this id.
        """
        states: dict[str, str] = {}
        refused: dict[str, ChordError] = {}
        addresses = list(dict.fromkeys(c if isinstance(c, str) else c.address for c in contacts))
        unheard = {*named, former}.intersection(addresses)

        def is_copy(address: str, error: ChordError) -> bool:
            return address == former and isinstance(error, DuplicateId)

        def is_settled() -> bool:
            return not unheard and "member" in states.values()  # a leaving node may go first

        async def ask(address: str, scope: trio.CancelScope) -> None:
            while True:
                is_unsure = False  # whether the node may stand at this id
                try:
                    with trio.fail_after(self._peers.failure_detector.timeout(address)):  # a lost call is repeated
                        pong = await self._peers.call(address, Ping(), PingReply)
                    states[address] = pong.state
                    if pong.state == "resuming" or not pong.has_met_quorum:
                        returning[address] = None
                    if address == former:
                        is_unsure = True
                        await self._refuse_if_member(address)
                        is_unsure = False
                except FATAL as error:
                    refused[address] = error
                    unheard.discard(address)
                    if address in named or is_copy(address, error) or is_settled():
                        scope.cancel()
                    return
                except PeerUnreachable:
                    states.pop(address, None)
                except (ChordError, trio.TooSlowError):
                    pass  # its earlier reply still counts
                if not is_unsure:
                    unheard.discard(address)
                if is_settled():
                    scope.cancel()
                await trio.sleep(self._host.jitter(self._host.timing.resume_s / 8))

        with trio.move_on_after(self._host.timing.resume_s) as scope:
            async with trio.open_nursery() as nursery:
                for address in addresses:
                    nursery.start_soon(ask, address, scope)
        for address, error in refused.items():
            is_other = isinstance(error, OtherRing) and address in named
            if is_copy(address, error) or is_other or (not states and address != former):
                raise error
        return states

    async def _refuse_if_member(self, address: str) -> None:
        """Refuse to resume if a member stands at this vnode's id.

        Only the simulator's network of whole messages needs this. A connection begins with a hello, in which a node in
        any state refuses a node with one of its ids at another address (`chord/wire/hello.py`).

        The address may still lead to this node. But this vnode is no member while it resumes.

        Args:
            address: the address of the other node.

        Raises:
            DuplicateId: a member answers for the id.
        """
        holder = Contact(self._vnode.id, address)
        try:
            pong = await self._peers.call(holder, Ping(), PingReply)
        except UnknownVnode:
            return
        if pong.state == "member":
            raise DuplicateId(f"{address} already stands at id {int(holder.id)}", peer=holder)
