"""Carts that lose nothing: two browsers write at the same time, and whoever reads next makes one cart of both.

    chord up -n 8                                    in another terminal
    python examples/shopping_cart.py 127.0.0.1:9000
"""

from __future__ import annotations

import json
import sys

import chord
from chord.client.results import Found

Cart = dict[str, int]


def union(found: Found) -> bytes:
    """Make one cart of concurrent ones: every item of any, the larger number of each."""
    carts: list[Cart] = [json.loads(value) for value in found.values]
    merged = {item: max(cart.get(item, 0) for cart in carts) for cart in carts for item in cart}
    return json.dumps(merged, sort_keys=True).encode()


class Browser:
    """One tab: it reads the cart, and later writes it back under the context of what it read."""

    def __init__(self, ring: chord.Ring, key: str) -> None:
        self.ring, self.key = ring, key
        self.cart: Cart = {}
        self.context = b""  # covers nothing: there may be a cart that was not read

    def read(self) -> Cart:
        found = self.ring.get(self.key, resolve=union)  # of siblings, their union
        self.cart, self.context = json.loads(found.value), found.context
        return self.cart

    def add(self, item: str) -> None:
        self.cart[item] = self.cart.get(item, 0) + 1
        self.context = self.ring.put(self.key, json.dumps(self.cart), context=self.context).context


def main(address: str) -> None:
    """Let two tabs write at the same time, and read what became of it."""
    with chord.connect(address) as ring:
        phone, laptop = Browser(ring, "cart:ada"), Browser(ring, "cart:ada")
        phone.add("tea")
        laptop.read()
        phone.add("milk")  # neither knows of the other
        laptop.add("honey")
        print("side by side:", len(ring.get("cart:ada").siblings))
        print("merged:", phone.read())
        phone.add("tea")  # written under the context of both: they are settled
        print("settled:", ring.get("cart:ada").value.decode())


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["127.0.0.1:9000"]))
