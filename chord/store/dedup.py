"""Retry deduplication: a late copy of a replaced operation shows nothing.

A retried put may be carried out twice, by two coordinators that do not hear of each other. Its value then has two dots.
A writer that replaces the visible copy knows nothing of the other copy. Therefore a record remembers which operation
replaced which. If two operations were each done twice, in either order, they have replaced each other. Then both are
shown, because no node can tell which was meant to be the last.

A put may replace a version that its coordinator does not hold, because the writer read it elsewhere. Then the record
remembers the dot in place of the operation. If an operation turns up under that dot, this put has replaced it. A dot
that no known put has claimed stands for an unknown operation.

A record remembers operations of more than one attempt up to a fixed number, whatever their age. A second copy of any
other operation may still arrive, so the record remembers the latest of some minutes. Wall clocks decide only which
entries are forgotten first. Both lists are unions that keep the latest few entries. They make merging commutative,
associative and idempotent, as `versions.sync` requires.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import permutations
from typing import NamedTuple

from chord.wire.messages import REPLACED_BYTES_MAX, Version

ENTRY_BYTES = 22
RETRIED_MAX = 16
CLAIMS_MAX = 4
"""Largest number of dots that a record remembers for one put that replaced versions missing in the record.

They count towards `RETRIED_MAX`.
"""
OTHERS_MAX = 8
OTHERS_MS = 600_000
"""Age in milliseconds at which a replaced operation without a retry is forgotten.

The age is the time from the replaced write to the key's newest write. By default, the ring waits equally long for an
unreachable node (`down_out_s`).
"""

TAG_BYTES = 8
"""Size of a tag: the second half of an operation id.

Operation ids are random, so a tag distinguishes the operation from all others of its key.
"""
_AT_BYTES = ENTRY_BYTES - 2 * TAG_BYTES
_DOT_PREFIX = bytes(2)
"""The first bytes of a tag that stands for a dot.

By chance, the tag of one operation in 65,536 also begins with them. If such an operation replaced another one, the
replacement counts as unknown.
"""
_RETRIED = 1 << 8 * _AT_BYTES - 1
_RETRIED_BYTE = 0x80

assert (RETRIED_MAX + OTHERS_MAX) * ENTRY_BYTES == REPLACED_BYTES_MAX


class Dot(NamedTuple):
    """The name of one write of one key.

    Attributes:
        actor: the actor that minted the dot.
        number: the number of the write among the actor's writes of the key, from 1.
    """

    actor: bytes
    number: int


class Replaced(NamedTuple):
    """A replaced version, and its replacement.

    Attributes:
        version: the replaced version.
        by: the id of the operation that replaced `version`. If the id is unknown, the dot of `version`: a `DotClaim`
            for this dot may name the operation.
    """

    version: Version
    by: bytes | Dot


class DotClaim(NamedTuple):
    """The statement that a put replaced a version which its coordinator does not hold.

    The coordinator knows of that version only its dot, from the context of the put.

    Attributes:
        dot: the dot of the replaced version.
        by: the version that the put wrote in its place.
    """

    dot: Dot
    by: Version


def join(
    remembered: Collection[bytes], replaced: Sequence[Replaced], newest_ms: int, claims: Sequence[DotClaim] = ()
) -> bytes:
    """Return the replaced operations to remember in a merged record.

    The result has the form of `Record.replaced`: retried operations, then the others, each kind latest first.

    Args:
        remembered: the `replaced` fields of the old records, without duplicates.
        replaced: the versions of the old records that the merged record no longer holds.
        newest_ms: when the newest remaining version was written, in ms since 1970; 0 if no version remains.
        claims: the dots of further versions that a put replaces, although no old record holds them.
    """
    if len(replaced) == 1 and not claims:
        following = _after(list(remembered), *replaced[0], newest_ms)
        if following is not None:
            return following
    return _join(remembered, replaced, newest_ms, claims)


def _after(remembered: list[bytes], gone: Version, by: bytes | Dot, newest_ms: int) -> bytes | None:
    """Compute the result of `_join` faster in two common cases; None in all others.

    In the first case, a coordinator replaces one version of its record. In the second case, a replica merges the new
    record after such a write. If the replica missed nothing, its list equals the coordinator's list from before the
    write. `gone` is the replaced version, and `by` its replacement; see `Replaced`.
    """
    if not isinstance(by, Dot):
        return _following(remembered[0], gone, by, newest_ms) if len(remembered) == 1 else None
    if len(remembered) == 2:
        for before, after in permutations(remembered):
            named = after[TAG_BYTES : 2 * TAG_BYTES]
            if named and not named.startswith(_DOT_PREFIX) and _following(before, gone, named, newest_ms) == after:
                return after
    return None


def _following(remembered: bytes, gone: Version, by: bytes, newest_ms: int) -> bytes | None:
    """Return `remembered` with an entry for the version `gone` in front, or None.

    None means that this shortcut cannot tell the result of `_join`, so the caller must use `_join`. That is so if
    `gone`, or an entry of `remembered`, counts as retried. It is also so if `gone` is not the latest entry, or if an
    entry would be too old (`OTHERS_MS`).

    Args:
        remembered: a list of replaced operations, latest first. Its last entry is dropped if the list is full.
        gone: the replaced version.
        by: the id or the tag of the operation that replaced `gone`.
        newest_ms: when the newest version of the key was written, in ms since 1970.
    """
    at_ms, tag = gone.written_ms, gone.op_id[-TAG_BYTES:]
    oldest_ms = max(newest_ms, at_ms) - OTHERS_MS
    if gone.is_retry or not oldest_ms < at_ms < _RETRIED:
        return None
    when, kept = at_ms.to_bytes(_AT_BYTES, "big"), remembered[: (OTHERS_MAX - 1) * ENTRY_BYTES]
    if kept:
        first = kept[2 * TAG_BYTES : ENTRY_BYTES]
        is_later = (when, tag) > (first, kept[:TAG_BYTES])  # the first is the latest; retries sort later still
        if not is_later or int.from_bytes(kept[-_AT_BYTES:], "big") <= oldest_ms:
            return None
    return tag + by[-TAG_BYTES:] + when + kept


def _join(
    remembered: Iterable[bytes], replaced: Iterable[Replaced], newest_ms: int, claims: Iterable[DotClaim]
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
    """Return whether a record remembers that an operation was replaced.

    Args:
        op_id: the id of the operation.
        remembered: the record's list of replaced operations, `Record.replaced`.
    """
    tag = _tag(op_id)
    return tag in remembered and any(_replaced(entry) == tag for entry in _sortable(remembered))


def is_hidden(op_id: bytes, remembered: bytes) -> bool:
    """Return whether readers must not see the version of an operation, because the operation was replaced.

    It is hidden if it was replaced, directly or indirectly, and has not itself replaced one of its replacements. If
    only the dot of its replacement is known, it is not hidden if it has replaced another operation.

    Args:
        op_id: the id of the operation.
        remembered: the record's list of replaced operations, `Record.replaced`.
    """
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
    """Return the tags of the operations that replaced an operation directly.

    A tag is the last 8 bytes of an operation id. If the operation is unknown, a dot stands for it, until a put names
    its own operation in the place of the dot. Such dots are returned only if no other tag is known.

    Args:
        tag: the tag of the replaced operation.
        by: for each replaced tag, the tags of its replacements.
    """
    replacers = by.get(tag, [])
    return [other for other in replacers if not _is_dot(other) or other in by] or list(replacers)


def tags(remembered: bytes) -> bytes:
    """Return the tags of the operations that a record remembers as replaced, joined to one string of bytes.

    A tag is the last 8 bytes of an operation id. Tags that stand for unknown operations are left out. `remembered` is
    the field `Record.replaced`.
    """
    found = dict.fromkeys(_replaced(entry) for entry in _sortable(remembered))
    return b"".join(tag for tag in found if not _is_dot(tag))


def is_tagged(op_id: bytes, tags: bytes) -> bool:
    """Return whether joined tags, from the function `tags`, include the tag of the operation with an id."""
    tag = _tag(op_id)
    return any(tags[at : at + TAG_BYTES] == tag for at in range(0, len(tags), TAG_BYTES))


def is_whole(remembered: bytes) -> bool:
    """Return whether bytes are a valid list of replaced operations, as `join` returns it."""
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


# A stored entry is the operation's tag, the tag of its replacement, and a time. In this code an entry begins with the
# time, so that entries sort as bytes. The time is that of the replaced version; for a claimed dot, that of the put.
# Its highest bit marks retried operations and claimed dots. Every replica joins a dozen entries for each write, and an
# object for each entry cost a fifth of a put.


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
    """Return the entries in the order given, latest first, without redundant dots.

    An entry has a dot if the replacement is unknown. The entry is redundant if another entry of the same replaced
    version stays. Dots sort behind the names, so each dropped entry follows an entry that stays. Therefore the first
    few results are the same in whatever order lists are joined.
    """
    telling: list[bytes] = []
    for entry in entries:
        is_more = telling and telling[-1][:-TAG_BYTES] == entry[:-TAG_BYTES]
        if not (is_more and _is_dot(_by(entry))):
            telling.append(entry)
    return telling


def _packed(entries: list[bytes]) -> bytes:
    return b"".join([entry[_AT_BYTES:] + entry[:_AT_BYTES] for entry in entries])
