"""Handlers declare the requests that they answer; a dispatcher finds them in a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from chord.wire.messages import Request

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "_handled_requests"


class Handler(NamedTuple):
    """Where a request is answered.

    Attributes:
        service: the attribute that holds the service; None if the owner of the table answers itself.
        method: the name of the method.
        takes_caller: whether the method also takes the caller.
    """

    service: str | None
    method: str
    takes_caller: bool

    def of(self, owner: object) -> Callable[..., Any]:
        """Return the method of the owner, or of its service."""
        return getattr(owner if self.service is None else getattr(owner, self.service), self.method)  # type: ignore[no-any-return]


HandlerTable: TypeAlias = dict[type[Request], Handler]


def handles(*requests: type[Request], takes_caller: bool = False) -> Callable[[F], F]:
    """Mark a method as the handler of some requests.

    Args:
        takes_caller: whether the method takes the caller as its second argument.
    """

    def mark(method: F) -> F:
        setattr(method, _MARK, (requests, takes_caller))
        return method

    return mark


def handler_table(owner: type, **services: type) -> HandlerTable:
    """Return the handlers of a class, and of the classes of the services in its attributes.

    Raises:
        ValueError: two methods handle one request.
    """
    table: HandlerTable = {}
    for service, kind in ((None, owner), *services.items()):
        for name, method in vars(kind).items():
            requests, takes_caller = getattr(method, _MARK, ((), False))
            for request in requests:
                if request in table:
                    raise ValueError(f"two handlers of {request.__name__}: {table[request].method} and {name}")
                table[request] = Handler(service, name, takes_caller)
    return table
