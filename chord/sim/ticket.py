"""A call in progress at message level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from chord.errors import ChordError
from chord.net.calls import Callback
from chord.wire.messages import Contact, Reply, Request

if TYPE_CHECKING:
    from chord.sim.messages import MessageCalls


@dataclass(slots=True, eq=False)
class Ticket:
    """A call in progress: the request, its target, and the callback for the outcome."""

    caller: MessageCalls
    to: Contact | str
    address: str
    request: Request
    budget: float
    callback: Callback | None
    result: Reply | ChordError | None = None  # on its way back

    def again(self) -> Ticket:
        """Return a copy of the request for a second arrival; its reply is dropped."""
        return Ticket(self.caller, self.to, self.address, self.request, self.budget, None)

    def settle(self, answer: Reply | ChordError) -> None:
        """Call back with the outcome, once."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(answer)

    def abandon(self, _: object) -> trio.lowlevel.Abort:
        """Drop the callback: the caller has been cancelled."""
        self.callback = None
        return trio.lowlevel.Abort.SUCCEEDED
