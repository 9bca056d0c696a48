"""Which operations have been replaced: so that another copy of one, when it turns up late, shows nothing.

A put that has to be tried again may be carried out twice, by two coordinators that do not hear of each other; its value
then has two dots. Who replaces the one that can be seen knows nothing of the other. So a record remembers which
operation was replaced by which. Two operations, each done twice and in either order, have replaced each other: then
both are shown, for nobody can say which was meant to be the last.

A put may replace what its coordinator does not hold, because its author read it elsewhere. Then the record remembers
the dot in the operation's place; the operation that turns up under it was replaced by this put. A dot that no put is
known to have claimed stands for somebody unknown.

Operations of more than one attempt are remembered until there are too many of them; of the others, whose second copy
may still come, the latest of some minutes. Clocks decide nothing but what is forgotten first. Both lists are joins
(unions, of which the latest few are kept): merging records commutes, associates and is idempotent, as `versions.sync`
must.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import permutations
from typing import NamedTuple

from chord.wire.messages import SUPERSEDED_BYTES_MAX, Version

ENTRY_BYTES = 22
RETRIED_MAX = 16
CLAIMS_MAX = 4
"""Of so many dots that a put replaces unseen it is remembered; they count among `RETRIED_MAX`."""
OTHERS_MAX = 8
OTHERS_MS = 600_000
"""So much older than a key's newest write an operation of one attempt may be: a silent node is waited for so long."""

TAG_BYTES = 8
"""Operation ids are random: half of one tells it from the others of its key."""
_AT_BYTES = ENTRY_BYTES - 2 * TAG_BYTES
_DOT_PREFIX = bytes(2)
"""What stands for a dot begins like this. So does one operation in 65,536: as a replacer it counts as unknown."""
_RETRIED = 1 << 8 * _AT_BYTES - 1
_RETRIED_BYTE = 0x80

assert (RETRIED_MAX + OTHERS_MAX) * ENTRY_BYTES == SUPERSEDED_BYTES_MAX


class Dot(NamedTuple):
    """One event of an actor."""

    actor: bytes
    number: int


class Replaced(NamedTuple):
    """A version that is gone, and who replaced it: an operation, or whoever claims its dot."""

    version: Version
    by: bytes | Dot


class Claim(NamedTuple):
    """A dot that a put replaces, though its version is not here."""

    dot: Dot
    by: Version


def join(
    remembered: Collection[bytes], replaced: Sequence[Replaced], newest_ms: int, claims: Sequence[Claim] = ()
) -> bytes:
    """Return what is to be remembered.

    Args:
        remembered: what several records did, each once.
        replaced: what is gone now.
        newest_ms: when the latest version was written that is left.
        claims: what was replaced unseen.
    """
    if len(replaced) == 1 and not claims:
        following = _after(list(remembered), *replaced[0], newest_ms)
        if following is not None:
            return following
    return _join(remembered, replaced, newest_ms, claims)


def _after(remembered: list[bytes], gone: Version, by: bytes | Dot, newest_ms: int) -> bytes | None:
    """Return what `_join` would, where a record is written once more or told of that; None where it is not so simple.

    Who is told, and has missed nothing, remembers what the other one did before that write.
    """
    if not isinstance(by, Dot):
        return _following(remembered[0], gone, by, newest_ms) if len(remembered) == 1 else None
    if len(remembered) == 2:
        for before, after in permutations(remembered):
            named = after[TAG_BYTES : 2 * TAG_BYTES]
            if named and not _is_dot(named) and _following(before, gone, named, newest_ms) == after:
                return after
    return None


def _following(remembered: bytes, gone: Version, by: bytes, newest_ms: int) -> bytes | None:
    """Return what is remembered once this operation has been replaced as well: it stands first, being the latest."""
    at_ms, tag = gone.written_ms, _tag(gone.op_id)
    oldest_ms = max(newest_ms, at_ms) - OTHERS_MS
    if gone.is_retry or not oldest_ms < at_ms < _RETRIED:
        return None
    when, kept = at_ms.to_bytes(_AT_BYTES, "big"), remembered[: (OTHERS_MAX - 1) * ENTRY_BYTES]
    if kept:
        first = kept[2 * TAG_BYTES : ENTRY_BYTES]
        is_later = (when, tag) > (first, kept[:TAG_BYTES])  # and so it is than all; who was tried again is later still
        if not is_later or int.from_bytes(kept[-_AT_BYTES:], "big") <= oldest_ms:
            return None
    return tag + _tag(by) + when + kept


def _join(
    remembered: Iterable[bytes], replaced: Iterable[Replaced], newest_ms: int, claims: Iterable[Claim]
) -> bytes:
    found: set[bytes] = set()
    for entries in remembered:
        found.update(_sortable(entries))
    for version, by in replaced:
        at = version.written_ms % _RETRIED + _RETRIED * version.is_retry
        found.add(_entry(at, _tag(version.op_id), _dot_tag(by) if isinstance(by, Dot) else _tag(by)))
    for dot, put in claims:
        found.add(_entry(put.written_ms % _RETRIED + _RETRIED, _dot_tag(dot), _tag(put.op_id)))
    if not found:
        return b""
    latest = _telling(sorted(found, reverse=True))
    retried = [entry for entry in latest if entry[0] >= _RETRIED_BYTE]
    others = latest[len(retried) :]
    oldest_ms = max(newest_ms, *(_at(some[0]) % _RETRIED for some in (retried, others) if some)) - OTHERS_MS
    while others and _at(others[-1]) <= oldest_ms:
        others.pop()
    return _packed(retried[:RETRIED_MAX]) + _packed(others[:OTHERS_MAX])


def names(op_id: bytes, remembered: bytes) -> bool:
    """Return whether an operation is among those that have been replaced."""
    tag = _tag(op_id)
    return tag in remembered and any(_replaced(entry) == tag for entry in _sortable(remembered))


def is_hidden(op_id: bytes, remembered: bytes) -> bool:
    """Return whether an operation has been replaced, and by none that it has replaced itself."""
    tag = _tag(op_id)
    if tag not in remembered:
        return False
    by: dict[bytes, list[bytes]] = {}
    for entry in _sortable(remembered):
        by.setdefault(_replaced(entry), []).append(_by(entry))
    has_replaced = any(tag in replacers for replacers in by.values())
    seen: dict[bytes, None] = {}
    following = _replacers(tag, by)
    while following:
        other = following.pop()
        if other == tag or (has_replaced and _is_dot(other) and other not in by):
            return False
        if other not in seen:
            seen[other] = None
            following += _replacers(other, by)
    return bool(seen)


def _replacers(tag: bytes, by: Mapping[bytes, list[bytes]]) -> list[bytes]:
    """Return who has replaced an operation: the dots of its copies only where nobody is known by name."""
    replacers = by.get(tag, [])
    return [other for other in replacers if not _is_dot(other) or other in by] or list(replacers)


def tags(remembered: bytes) -> bytes:
    """Return the tags of the operations that have been replaced, 8 bytes each; not those that stand for a dot."""
    found = dict.fromkeys(_replaced(entry) for entry in _sortable(remembered))
    return b"".join(tag for tag in found if not _is_dot(tag))


def is_tagged(op_id: bytes, tags: bytes) -> bool:
    """Return whether the tag of an operation is among these."""
    tag = _tag(op_id)
    return any(tags[at : at + TAG_BYTES] == tag for at in range(0, len(tags), TAG_BYTES))


def is_whole(remembered: bytes) -> bool:
    """Return whether these bytes are what `join` makes."""
    return len(remembered) % ENTRY_BYTES == 0 and remembered == join([remembered], (), 0)


def _tag(op_id: bytes) -> bytes:
    return op_id[-TAG_BYTES:]


def _dot_tag(dot: Dot) -> bytes:
    name = dot.actor + dot.number.to_bytes(8, "big")
    return _DOT_PREFIX + blake2b(name, digest_size=TAG_BYTES - len(_DOT_PREFIX)).digest()


def _is_dot(tag: bytes) -> bool:
    return tag.startswith(_DOT_PREFIX)


def _entry(at: int, replaced: bytes, by: bytes) -> bytes:
    return at.to_bytes(_AT_BYTES, "big") + replaced + by


# An entry is remembered as tag, by, when; what is worked with begins with when, and so sorts as bytes: the highest bit
# of that time says that the operation was tried again. `at_ms` is when the version that was replaced was written.
# Each write joins at all replicas, with a dozen entries: an object for each of them cost a fifth of a put.


def _sortable(remembered: bytes) -> list[bytes]:
    starts, name = range(0, len(remembered), ENTRY_BYTES), 2 * TAG_BYTES
    return [remembered[at + name : at + ENTRY_BYTES] + remembered[at : at + name] for at in starts]


def _at(entry: bytes) -> int:
    return int.from_bytes(entry[:_AT_BYTES], "big")


def _replaced(entry: bytes) -> bytes:
    return entry[_AT_BYTES:-TAG_BYTES]


def _by(entry: bytes) -> bytes:
    return entry[-TAG_BYTES:]


def _telling(entries: list[bytes]) -> list[bytes]:
    """Return of each copy of an operation who has replaced it, else one of its dots; latest first, before and after.

    Dots sort behind the names. So whatever is left out here stands behind something that stays, and the first few of
    what is left are the same in whatever order lists are joined.
    """
    telling: list[bytes] = []
    for entry in entries:
        is_more = telling and telling[-1][:-TAG_BYTES] == entry[:-TAG_BYTES]
        if not (is_more and _is_dot(_by(entry))):
            telling.append(entry)
    return telling


def _packed(entries: list[bytes]) -> bytes:
    return b"".join([entry[_AT_BYTES:] + entry[:_AT_BYTES] for entry in entries])
