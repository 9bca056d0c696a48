"""Declaration of request handlers, and the table that maps requests to them."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

from chord.wire.messages import Request

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "_handled_requests"


class Handler(NamedTuple):
    """The method that answers a type of request.

    Attributes:
        of: gets the object that the request arrives at, and returns the bound method: its own, or of its service.
        method: the name of the method.
        takes_caller: whether the method takes the `Caller` as its second argument, after the request.
    """

    of: Callable[[object], Callable[..., Any]]
    method: str
    takes_caller: bool


HandlerTable: TypeAlias = dict[type[Request], Handler]


def handles(*requests: type[Request], takes_caller: bool = False) -> Callable[[F], F]:
    """Return a decorator that declares a method as the handler of some types of request.

    `handler_table` collects the declared methods.

    Args:
        requests: the types of request.
        takes_caller: whether the method takes the `Caller` as its second argument, after the request.
    """

    def mark(method: F) -> F:
        setattr(method, _MARK, (requests, takes_caller))
        return method

    return mark


def handler_table(owner: type, **services: type) -> HandlerTable:
    """Return the handler of each type of request that a class or its services declare with `handles`.

    Args:
        owner: the class of the objects that the requests arrive at.
        services: for each attribute of the owner that holds a service, the class of the service. A service is an object
            that answers some of the owner's requests.

    Raises:
        ValueError: two methods handle one type of request.
    """
    table: HandlerTable = {}
    for service, kind in ((None, owner), *services.items()):
        for name, method in vars(kind).items():
            requests, takes_caller = getattr(method, _MARK, ((), False))
            for request in requests:
                if request in table:
                    raise ValueError(f"two handlers of {request.__name__}: {table[request].method} and {name}")
                of = attrgetter(name if service is None else f"{service}.{name}")
                table[request] = Handler(of, name, takes_caller)
    return table
