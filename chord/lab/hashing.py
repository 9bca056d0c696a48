"""Hashes of keys, independent hashes made from one hash, and generators of keys.

A scheme never sees a key, only its 64-bit hash, so an array of a million hashes is placed at once. The hash function
must look random, and xxHash does, at 10 GB/s. It need not resist an adversary that chooses keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

HASH_BITS = 64
SPAN = 1 << HASH_BITS
"""Number of different hashes."""

MASK = SPAN - 1
GOLDEN = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio, made odd.

It is the step between the streams of `mix`, and the multiplier of Fibonacci hashing.
"""

_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

Hashes = NDArray[np.uint64]


class Hasher(NamedTuple):
    """A hash function with its name; it maps keys to integers below 2**64."""

    name: str
    one: Callable[[bytes], int]

    def many(self, keys: Iterable[bytes]) -> Hashes:
        """Return the hashes of many keys, in their order; shape (number of keys,)."""
        count = len(keys) if isinstance(keys, Sequence) else -1
        return np.fromiter(map(self.one, keys), np.uint64, count)


def _sha1(key: bytes) -> int:
    return int.from_bytes(hashlib.sha1(key, usedforsecurity=False).digest()[:8], "big")


def _prefix(key: bytes) -> int:
    return int.from_bytes(key[:8].lower().ljust(8, b"\0"), "big")


XXH3 = Hasher("xxh3", xxhash.xxh3_64_intdigest)
"""The default hash of a key. Source: Collet, xxHash 0.8, XXH3 with 64 bits."""

SHA1 = Hasher("sha1", _sha1)
"""The first 64 bits of SHA-1, big-endian.

It gives the id of a key on a Chord ring of 64 bits (`chord.ids.Circle.hash`).
"""

PREFIX = Hasher("prefix", _prefix)
"""The first eight bytes of a key, letters in lower case.

It is not a hash: it keeps the order of keys, and with it their skew.
"""


# -- many hashes out of one ---------------------------------------------------------------------------


def mix_one(number: int, salt: int = 0) -> int:
    """Return another hash of one hash, as if by an independent hash function.

    `mix` does the same with arrays. Each salt stands for a function of its own. The number counts modulo 2**64.
    """
    z = (number + salt * GOLDEN) & MASK
    z = ((z ^ (z >> 30)) * _FIRST) & MASK
    z = ((z ^ (z >> 27)) * _SECOND) & MASK
    return z ^ (z >> 31)


def mix(hashes: Hashes, salt: int | Hashes = 0) -> Hashes:
    """Return another hash of each hash, as if by an independent hash function.

    Each salt stands for a function of its own. For one salt, `mix` is a bijection of the 64-bit numbers: different
    hashes stay different.

    Args:
        hashes: of any shape; not changed.
        salt: the number of the function, or the hash of a node to combine with; one for all hashes, or one for each.

    Returns:
        an array of the same shape.

    Source: Steele, Lea, Flood 2014 (OOPSLA), SplitMix64. `salt` is the number of counter steps to skip.
    """
    steps = np.uint64((salt * GOLDEN) & MASK) if isinstance(salt, int) else salt * np.uint64(GOLDEN)
    z = hashes + steps
    shifted = z >> np.uint64(30)
    z ^= shifted
    z *= np.uint64(_FIRST)
    np.right_shift(z, np.uint64(27), out=shifted)
    z ^= shifted
    z *= np.uint64(_SECOND)
    np.right_shift(z, np.uint64(31), out=shifted)
    z ^= shifted
    return z


def unit(number: int) -> float:
    """Map a 64-bit hash to a number strictly between 0 and 1.

    The result is the top 52 bits plus a half, over 2**52.
    """
    return ((number >> 12) + 0.5) * 2.0**-52


def units(hashes: Hashes) -> NDArray[np.float64]:
    """Map 64-bit hashes to numbers strictly between 0 and 1, as `unit` does."""
    return ((hashes >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def scale_one(number: int, count: int) -> int:
    """Return the number, from 0, of the part that a hash falls into, of `count` parts.

    The parts divide the range of hashes equally. Only the upper 32 bits of the hash count.
    """
    return ((number >> 32) * count) >> 32


def scale(hashes: Hashes, count: int) -> Hashes:
    """Return for each hash the number, from 0, of its part, of `count` equal parts.

    Only the upper 32 bits of the hash count.

    Args:
        hashes: of any shape.
        count: at most 2**32.

    Returns:
        an array of the same shape.
    """
    return ((hashes >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)


# -- keys to try schemes on ---------------------------------------------------------------------------


def number_keys(count: int, prefix: str = "key-") -> list[bytes]:
    """Return `count` keys: the prefix followed by 0, 1, 2 and so on."""
    return [f"{prefix}{number}".encode() for number in range(count)]


def random_hashes(rng: np.random.Generator, count: int) -> Hashes:
    """Return random numbers that stand for the hashes of `count` random keys."""
    return rng.integers(0, SPAN, size=count, dtype=np.uint64, endpoint=False)


INITIALS: dict[str, float] = {
    "a": 3.5, "b": 8.5, "c": 8.0, "d": 5.0, "e": 2.0, "f": 3.5, "g": 5.0, "h": 7.5, "i": 0.5, "j": 3.0, "k": 3.5,
    "l": 5.0, "m": 9.5, "n": 2.0, "o": 1.5, "p": 5.0, "q": 0.2, "r": 5.5, "s": 9.5, "t": 3.5, "u": 0.3, "v": 1.5,
    "w": 6.5, "x": 0.1, "y": 0.6, "z": 0.6,
}  # fmt: skip
"""Relative frequency of first letters of surnames.

Invented, so that a table of first letters is as uneven as the course notes "分片 (Sharding)" say. S is about a
hundred times as frequent as X.
"""


def surname_keys(rng: np.random.Generator, count: int) -> list[bytes]:
    """Return `count` random keys like surnames: seven letters, the first one unevenly distributed (`INITIALS`)."""
    letters = np.array(list(INITIALS))
    shares = np.array(list(INITIALS.values()))
    first = rng.choice(letters, size=count, p=shares / shares.sum())
    rest = rng.choice(letters, size=(count, 6))
    return ["".join((head, *tail)).encode() for head, tail in zip(first.tolist(), rest.tolist(), strict=True)]


def zipf_requests(rng: np.random.Generator, keys: int, count: int, exponent: float = 1.0) -> NDArray[np.intp]:
    """Return the key that each of `count` requests asks for, under Zipf's law.

    The k-th most popular key is requested in proportion to 1 / k**exponent.

    Args:
        keys: number of keys.
        count: number of requests.
        exponent: skew of the law; at 0 all keys are equally popular.

    Returns:
        key numbers below `keys`, with 0 the most popular; shape (count,).
    """
    popularity = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    upper = np.cumsum(popularity)
    drawn = rng.random(count) * upper[-1]
    asked: NDArray[np.intp] = np.searchsorted(upper, drawn, side="right")
    return np.minimum(asked, keys - 1, out=asked)
