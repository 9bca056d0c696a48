"""A call in progress at message level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from chord.errors import ChordError, DefiniteError
from chord.net.calls import Callback
from chord.wire.messages import Contact, Reply, Request

if TYPE_CHECKING:
    from chord.sim.messages import MessageCalls


@dataclass(slots=True, eq=False)
class Ticket:
    """A call in progress: the request, its target, and the callback for the outcome.

    Attributes:
        caller: the calls of the host that sent the request.
        to: the target vnode, or the address of a target node.
        address: the address of the target node.
        budget: virtual second until which the target may work on the request.
        callback: receives the outcome; None: the outcome is dropped.
        result: the reply or error on its way back; None before the target has sent it.
        cut: the number of the newest cut that the sender of the message under way knew.
        first: for the second arrival of a request, the ticket of its first one; otherwise None.
    """

    caller: MessageCalls
    to: Contact | str
    address: str
    request: Request
    budget: float
    callback: Callback | None
    result: Reply | ChordError | None = None  # on its way back
    cut: int = 0
    first: Ticket | None = None

    def again(self) -> Ticket:
        """Return a ticket for a second arrival of the request; its reply is dropped."""
        return Ticket(self.caller, self.to, self.address, self.request, self.budget, None, cut=self.cut, first=self)

    def may_be_sent_again(self) -> bool:
        """Return whether the caller may have sent the request again, on another connection.

        A caller does so only if it no longer waits for the first outcome, and that outcome is no definite error. A
        definite error promises that the request has no effect.
        """
        return self.callback is None and not isinstance(self.result, DefiniteError)

    def settle(self, answer: Reply | ChordError) -> None:
        """Call the callback with the outcome, unless it was called or dropped before."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(answer)

    def abandon(self, _: object) -> trio.lowlevel.Abort:
        """Drop the callback; Trio calls this when the waiting caller is cancelled."""
        self.callback = None
        return trio.lowlevel.Abort.SUCCEEDED
