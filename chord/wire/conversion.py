"""Convert plain values to structs, also if several threads use a type for the first time.

msgspec analyses a type of struct when it first decodes one. If another thread uses the type meanwhile, msgspec reads
unfinished memory, and the process crashes. So only one thread at a time uses types for the first time. A type that was
used once is ready, with all types of its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any, Final, TypeVar

import msgspec

first_use: Final = RLock()  # a signal handler that uses a client must not wait for its own thread
"""Held while a thread uses a type that may not be ready.

A module that makes a decoder for types of messages holds it, too.
"""

_ready: Final[set[type]] = set()

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def convert(
    content: Any,
    expected: type[_Struct],
    dec_hook: Callable[[type, Any], Any] | None = None,
    builtin_types: Iterable[type] = (),
) -> _Struct:
    """Convert plain content to a struct; see `msgspec.convert`.

    Raises:
        msgspec.ValidationError: the content is not of the expected type.
    """
    if expected in _ready:
        return msgspec.convert(content, expected, dec_hook=dec_hook, builtin_types=builtin_types)
    with first_use:
        try:
            found = msgspec.convert(content, expected, dec_hook=dec_hook, builtin_types=builtin_types)
        except msgspec.ValidationError:  # any other error may have stopped the analysis
            _ready.add(expected)
            raise
        _ready.add(expected)
        return found
