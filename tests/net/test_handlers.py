"""Handlers: each takes the requests that it declares, and the caller if declared."""

from __future__ import annotations

import sys
from typing import Any, get_args, get_type_hints

import pytest

from chord.net.calls import Caller
from chord.net.handlers import HandlerTable, handler_table, handles
from chord.node.dispatch import Dispatcher
from chord.node.services import VnodeServices
from chord.wire.messages import Get, Ping, PingReply

TABLES: dict[type, HandlerTable] = {VnodeServices: VnodeServices.HANDLERS, Dispatcher: Dispatcher.HANDLERS}


class Mistaken:
    """Handlers with mistakes."""

    @handles(Get)
    def on_get(self, request: Ping) -> PingReply:
        """Take another request."""
        raise NotImplementedError

    @handles(Ping, takes_caller=True)
    def on_ping(self, request: Ping, caller: str) -> PingReply:
        """Take another type than the caller."""
        raise NotImplementedError


def mistakes(table: HandlerTable, methods: dict[str, Any]) -> list[str]:
    """Return the handlers with parameters that the dispatcher does not pass."""
    found = []
    for request, handler in table.items():
        hints = get_type_hints(methods[handler.method])
        hints.pop("return")
        first, *rest = hints.values()
        if request is not first and request not in get_args(first):
            found.append(f"{handler.method} does not take {request.__name__}")
        if rest != [Caller] * handler.takes_caller:
            found.append(f"{handler.method} takes {rest} besides")
    return found


def methods_of(owner: type) -> dict[str, Any]:
    """Return the methods of all classes in a class's module, by name."""
    module = sys.modules[owner.__module__]
    kinds = [owner, *(kind for kind in vars(module).values() if type(kind) is type)]
    return {name: method for kind in reversed(kinds) for name, method in vars(kind).items() if callable(method)}


@pytest.mark.parametrize("owner", TABLES)
def test_handlers_take_what_the_dispatcher_passes(owner: type) -> None:
    assert mistakes(TABLES[owner], methods_of(owner)) == []


def test_mistaken_handlers_are_found() -> None:
    found = mistakes(handler_table(Mistaken), dict(vars(Mistaken)))
    assert found == ["on_get does not take Get", "on_ping takes [<class 'str'>] besides"]


def test_two_handlers_of_one_request_are_refused() -> None:
    class Other:
        @handles(Ping)
        def on_ping(self, request: Ping) -> PingReply:
            """Handle the request a second time."""
            raise NotImplementedError

    with pytest.raises(ValueError, match="two handlers of Ping"):
        handler_table(Mistaken, other=Other)
