"""Other nodes leave, pause or come back: what they say of themselves, and what an operator says of them."""

from __future__ import annotations

from collections.abc import Callable

from chord.errors import InvalidRequest
from chord.net.calls import Caller
from chord.net.handlers import handles
from chord.replication.anti_entropy import Repair
from chord.ring.context import Host
from chord.wire.messages import Departing, Done, Forget, Pausing, Retiring, Returned


class Departures:
    """Handles the goodbyes of other nodes, and the decision to forget one.

    Args:
        repairs: returns the anti-entropy of each vnode of this node.
        stabilize_soon: lets stabilization run now instead of in its next round.
    """

    def __init__(self, host: Host, repairs: Callable[[], list[Repair]], stabilize_soon: Callable[[], None]) -> None:
        self._host = host
        self._repairs = repairs
        self._stabilize_soon = stabilize_soon

    @handles(Departing, takes_caller=True)
    def on_departing(self, request: Departing, caller: Caller) -> Done:
        """Drop the vnodes of a node that has left, and take over their successor lists."""
        _require_same(request.address, caller)
        self._inherit(request)
        left = {parting.vnode.id for parting in request.partings}
        self._host.peers.has_left(request.address, left)
        for vnode in self._host.vnodes.values():
            vnode.view.gone(left)
            vnode.view.stays(request.address)
        self._stabilize_soon()
        return Done()

    @handles(Returned, takes_caller=True)
    def on_returned(self, request: Returned, caller: Caller) -> Done:
        """Ask a restarted node soon, and compare its replicas."""
        _require_same(request.address, caller)
        self._host.peers.passive.hurry(request.address, self._host.peers.now())
        for vnode in self._host.vnodes.values():
            vnode.view.is_back(request.address)
        for repair in self._repairs():
            repair.fell_behind(request.address)
        return Done()

    @handles(Retiring, takes_caller=True)
    def on_retiring(self, request: Retiring, caller: Caller) -> Done:
        """Choose replica sets without a node that is about to leave."""
        _require_same(request.address, caller)
        for vnode in self._host.vnodes.values():
            vnode.view.retires(request.address, self._host.peers.now())
        return Done()

    @handles(Pausing, takes_caller=True)
    def on_pausing(self, request: Pausing, caller: Caller) -> Done:
        """Route around a node that stops for a while. It keeps its records, even if it was about to leave."""
        _require_same(request.address, caller)
        for vnode in self._host.vnodes.values():
            vnode.view.stays(request.address)
        self._host.peers.has_paused(request.address, is_only_copy=self._host.constants.replicas == 1)
        self._stabilize_soon()
        return Done()

    @handles(Forget)
    def on_forget(self, request: Forget) -> Done:
        """Wait no longer for the records of a node: an operator says that it will not come back."""
        now = self._host.peers.now()
        living = frozenset(request.living)
        for vnode in self._host.vnodes.values():
            own = vnode.ownership
            gone = (mark.dead for mark in own.taken if mark.dead.address == request.address)
            own.owner_left({dead.id for dead in gone if dead.id not in living})
            vnode.view.forget(request.address, now, living, forgotten_max=self._host.limits.forgotten_max)
        self._host.peers.passive.forget_at(request.address, living)
        return Done()

    def _inherit(self, request: Departing) -> None:
        """Take the successor lists of heads that leave: repeatedly, for several of them may stand in a row."""
        for parting in request.partings * len(request.partings):
            if parting.vnode.address == request.address:
                for vnode in self._host.vnodes.values():
                    self._host.tell(vnode.ring.inherit(parting.vnode, parting.successors))
                    vnode.fingers.forget(parting.vnode)


def _require_same(address: str, caller: Caller) -> None:
    """Refuse a goodbye that another node says.

    Raises:
        InvalidRequest: definite.
    """
    if not caller.address or caller.address != address:
        raise InvalidRequest(f"goodbye of {address} from {caller.address or 'a client'}: expected from the node itself")
