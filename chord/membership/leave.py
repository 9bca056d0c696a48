"""Notices that other nodes leave, pause or return, and orders to forget a node."""

from __future__ import annotations

from collections.abc import Callable

from chord.errors import InvalidRequest
from chord.net.calls import Caller
from chord.net.handlers import handles
from chord.replication.anti_entropy import AntiEntropy
from chord.ring.context import NodeContext
from chord.wire.messages import Departing, Done, Forget, Pausing, Retiring, Returned


class Departures:
    """Handles notices that other nodes leave, pause or return, and an operator's order to forget a node.

    A notice must come from the node that it is about. Otherwise its handler raises `InvalidRequest`.

    Args:
        host: the node context.
        repairs: returns the anti-entropy of each vnode of this node.
        stabilize_soon: starts a stabilize round now, before the next periodic one.
    """

    __slots__ = ("_host", "_repairs", "_stabilize_soon")

    def __init__(
        self, host: NodeContext, repairs: Callable[[], list[AntiEntropy]], stabilize_soon: Callable[[], None]
    ) -> None:
        self._host = host
        self._repairs = repairs
        self._stabilize_soon = stabilize_soon

    @handles(Departing, takes_caller=True)
    def on_departing(self, request: Departing, caller: Caller) -> Done:
        """Handle the goodbye of a node: drop its vnodes from all lists, and adopt their successor lists.

        Raises:
            InvalidRequest: definite; another node sent the goodbye.
        """
        _require_same(request.address, caller)
        self._inherit(request)
        left = {parting.vnode.id for parting in request.partings}
        self._host.peers.has_left(request.address, left)
        for vnode in self._host.vnodes.values():
            vnode.preference_list.gone(left)
            vnode.preference_list.stays(request.address)
        self._stabilize_soon()
        return Done()

    @handles(Returned, takes_caller=True)
    def on_returned(self, request: Returned, caller: Caller) -> Done:
        """Handle the notice that a node has restarted: call it soon, and no longer count it as in sync.

        Anti-entropy then compares the records that it replicates.

        Raises:
            InvalidRequest: definite; another node sent the notice.
        """
        _require_same(request.address, caller)
        self._host.peers.passive.hurry(request.address, self._host.peers.now())
        for vnode in self._host.vnodes.values():
            vnode.preference_list.is_back(request.address)
        for repair in self._repairs():
            repair.fell_behind(request.address)
        return Done()

    @handles(Retiring, takes_caller=True)
    def on_retiring(self, request: Retiring, caller: Caller) -> Done:
        """Handle the notice that a node is about to leave: it is no longer a member of replica sets.

        It still counts as a node that may hold their records (`ReplicaSet.retiring`).

        Raises:
            InvalidRequest: definite; another node sent the notice.
        """
        _require_same(request.address, caller)
        for vnode in self._host.vnodes.values():
            vnode.preference_list.retires(request.address, self._host.peers.now())
        self._host.news()
        return Done()

    @handles(Pausing, takes_caller=True)
    def on_pausing(self, request: Pausing, caller: Caller) -> Done:
        """Handle the notice that a node stops for a while and keeps its records: lookups route around it.

        If the node had announced a leave, it no longer counts as leaving.

        Raises:
            InvalidRequest: definite; another node sent the notice.
        """
        _require_same(request.address, caller)
        for vnode in self._host.vnodes.values():
            vnode.preference_list.stays(request.address)
        self._host.peers.has_paused(request.address, is_only_copy=self._host.constants.replicas == 1)
        self._stabilize_soon()
        return Done()

    @handles(Forget)
    def on_forget(self, request: Forget) -> Done:
        """Handle an operator's order to forget a node: stop waiting for the node and its records.

        The vnodes in `request.living` belong to another node at the same address, and still count. A forgotten owner
        counts as left. Otherwise its mark would return with the mark of the next owner behind it.
        """
        now = self._host.peers.now()
        living = frozenset(request.living)
        for vnode in self._host.vnodes.values():
            own = vnode.ownership
            marked = (mark.dead for mark in own.marks if mark.dead.address == request.address)
            gone = {dead.id for dead in marked if dead.id not in living}
            own.owner_left(gone)
            self._host.peers.give_up(gone)
            vnode.preference_list.forget(request.address, now, living, forgotten_max=self._host.limits.forgotten_max)
        self._host.peers.passive.forget_at(request.address, living)
        self._host.news()
        return Done()

    def _inherit(self, request: Departing) -> None:
        """If a leaving vnode is the first successor here, adopt its successor list.

        This is repeated, because the first vnode of the adopted list may leave, too. The leaving vnodes also leave the
        finger tables here.
        """
        for parting in request.partings * len(request.partings):
            if parting.vnode.address == request.address:
                for vnode in self._host.vnodes.values():
                    self._host.tell(vnode.ring.inherit(parting.vnode, parting.successors))
                    vnode.fingers.forget(parting.vnode)


def _require_same(address: str, caller: Caller) -> None:
    """Refuse a notice about a node that another node sent.

    Raises:
        InvalidRequest: definite; the caller is not the node at the address.
    """
    if not caller.address or caller.address != address:
        raise InvalidRequest(f"goodbye of {address} from {caller.address or 'a client'}: expected from the node itself")
