"""Records: reads, writes, batches, backups and the quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chord.client.inspection import Copy, Inspection
from chord.client.results import Decided, Found, Quarantined, Stored, to_key
from chord.errors import ChordError
from chord.ids import Circle
from chord.views.common import Json, context_json, error_json, key_json, text_or_b64, value_json, vnode_json


def get_json(key: bytes, found: Found | None, trace: Json | None = None, *, quarantined: int = 0) -> Json:
    """Return the result of a read as JSON.

    Args:
        key: the key that was read.
        found: the values; None: the key has none.
        trace: the outcome at each replica, as `replicas_json` returns it; None if it was not asked for.
        quarantined: the number of further values of the key in quarantine.
    """
    return {
        **key_json(key),
        "found": found is not None,
        "values": [value_json(v) for v in found.values] if found else [],
        "context": context_json(found.context) if found else None,
        "r": found.r if found else None,
        "r_needed": found.r_needed if found else None,
        "quarantined": quarantined,
        "left": found.left if found else 0,
        "local": found.is_local if found else False,
        "trace": trace,
    }


def put_json(stored: Stored, owner: Json, trace: Json | None) -> Json:
    """Return the result of an acknowledged write as JSON.

    Args:
        stored: the acknowledgement.
        owner: the coordinator of the write, as `vnode_json` returns it.
        trace: the outcome at each replica, as `replicas_json` returns it; None if it was not asked for.
    """
    return {
        **key_json(stored.key),
        "owner": owner,
        "context": context_json(stored.context),
        "w": stored.w,
        "w_needed": stored.w_needed,
        "quorum": stored.quorum,
        "under_replicated": stored.is_under_replicated,
        "sloppy": stored.is_sloppy,
        "beside": stored.beside,
        "quarantined": stored.quarantined,
        "trace": trace,
    }


def pair_json(key: bytes, value: bytes) -> Json:
    """Return a key and a value as one JSON line, as `chord load` reads and `chord scan` writes it.

    Each is text, or base64 under `key_b64` or `value_b64` if it is not UTF-8.
    """
    return {**text_or_b64("key", key), **text_or_b64("value", value)}


def load_json(
    stored: int, failures: Iterable[tuple[str | bytes, ChordError]], *, failed: int, is_complete: bool, seconds: float
) -> Json:
    """Return the result of `chord load` as JSON.

    Args:
        stored: the number of keys that were stored.
        failures: pairs of a key that failed and its error; only the first ones if there are many.
        failed: the number of all keys that failed.
        is_complete: whether every key was tried.
        seconds: the duration, in seconds.
    """
    return {
        "stored": stored,
        "failed": failed,
        "complete": is_complete,
        "seconds": round(seconds, 3),
        "failures": _failures(failures),
    }


def backup_json(
    file: str, records: int, size: int, *, is_complete: bool, damaged: int, cut: int, consistent: bool,
    without_cut: Iterable[str], seconds: float,
) -> Json:  # fmt: skip
    """Return the result of `chord backup` as JSON.

    Args:
        file: the name of the file.
        records: the number of records in it.
        size: its size in bytes.
        is_complete: whether it has all values of all records. If not, the exit code is 6.
        damaged: the number of records that could not be read.
        cut: the number of records that lack values, because they have too many for one reply.
        consistent: whether the records are from one consistent cut of all nodes.
        without_cut: the addresses of the members that did not hold their cut until its end.
        seconds: the duration, in seconds.
    """
    return {
        "file": file,
        "records": records,
        "bytes": size,
        "complete": is_complete,
        "damaged": damaged,
        "cut": cut,
        "consistent": consistent,
        "without_cut": list(without_cut),
        "seconds": round(seconds, 3),
    }


def restore_json(
    file: str, records: int, merged: int, failures: Iterable[tuple[str | bytes, ChordError]], *, failed: int,
    dead: int, brought_back: int, quarantined: int, is_complete: bool, seconds: float,
) -> Json:  # fmt: skip
    """Return the result of `chord restore` as JSON.

    Args:
        file: the name of the backup.
        records: the number of records in it.
        merged: the number of records that were merged into the ring.
        failures: pairs of a key that failed and its error; only the first ones if there are many.
        failed: the number of all keys that failed.
        dead: the number of values in the backup that were deleted or replaced since, and stay so.
        brought_back: the number of such values that were written again as new ones.
        quarantined: the number of values that these keys have in quarantine.
        is_complete: whether every record was tried.
        seconds: the duration, in seconds.
    """
    return {
        "file": file,
        "records": records,
        "merged": merged,
        "failed": failed,
        "dead": dead,
        "brought_back": brought_back,
        "quarantined": quarantined,
        "complete": is_complete,
        "seconds": round(seconds, 3),
        "failures": _failures(failures),
    }


def quarantined_json(found: Quarantined, stores: Mapping[bytes, str]) -> Json:
    """Return the values that a key has in quarantine as JSON.

    Args:
        found: the values.
        stores: the name of each node, by the incarnation of its store. A value from any other store has the node None.
    """
    return {
        **key_json(found.key),
        "values": [
            {
                "value": None if one.value is None else value_json(one.value),
                "written_ms": one.written_ms,
                "expires_ms": one.expires_ms or None,
                "origin": {
                    "store": one.store.hex(), "node": stores.get(one.store), "key_epoch": one.key_epoch,
                    "number": one.number,
                },
            }
            for one in found.values
        ],
        "left": found.left,
        "context": context_json(found.context),
    }


def decided_json(decided: Decided, *, merge: bool) -> Json:
    """Return the result of dropping a key's values in quarantine, or of merging them, as JSON.

    `merge` says which of the two was done.
    """
    return {
        **key_json(decided.key),
        "action": "merge" if merge else "drop",
        "values": decided.values,
        "left": decided.left,
        "w": decided.w,
        "w_needed": decided.w_needed,
    }


def _failures(failures: Iterable[tuple[str | bytes, ChordError]]) -> list[Json]:
    return [{**key_json(to_key(key)), "error": error_json(error)} for key, error in failures]


def inspection_json(circle: Circle, found: Inspection, names: Mapping[str, str]) -> Json:
    """Return the copy of a key at each member of its replica set as JSON.

    Args:
        circle: the circle of the ring.
        found: the copies.
        names: the names of nodes by address. A node that it lacks appears with its address.
    """
    return {
        **key_json(found.key),
        "owner": vnode_json(circle, found.owner, names),
        "copies": [{**vnode_json(circle, copy.member, names), **_copy_json(copy)} for copy in found.copies],
    }


def _copy_json(copy: Copy) -> Json:
    return {
        "reason": copy.reason or None,
        "version": copy.version.hex() or None,
        "values": [
            {**value_json(one.value), "written_ms": one.written_ms, "expires_ms": one.expires_ms or None}
            for one in copy.versions
            if one.value is not None
        ],
        "tombstone": any(one.value is None for one in copy.versions),
        "quarantined": copy.quarantined,
        "in_sync": copy.is_in_sync,
        "damaged": copy.is_damaged,
    }
