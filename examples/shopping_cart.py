"""Shopping carts that lose nothing: a reader merges concurrent writes.

Start a ring with `chord up -n 8`. Then run `python examples/shopping_cart.py 127.0.0.1:9000` in another terminal.
"""

from __future__ import annotations

import json
import sys

import chord
from chord.client.results import Found

Cart = dict[str, int]


def union(found: Found) -> bytes:
    """Merge concurrent carts: all items of every cart, each with its largest number."""
    carts: list[Cart] = [json.loads(value) for value in found.values]
    merged = {item: max(cart.get(item, 0) for cart in carts) for cart in carts for item in cart}
    return json.dumps(merged, sort_keys=True).encode()


class Browser:
    """A browser tab. It writes the cart under the context of its last read."""

    def __init__(self, client: chord.Client, key: str) -> None:
        self.client, self.key = client, key
        self.cart: Cart = {}
        self.context = b""  # replaces nothing: the tab has not read the cart yet

    def read(self) -> Cart:
        found = self.client.get(self.key, resolve=union)  # merges concurrent carts
        self.cart, self.context = json.loads(found.value), found.context
        return self.cart

    def add(self, item: str) -> None:
        self.cart[item] = self.cart.get(item, 0) + 1
        self.context = self.client.put(self.key, json.dumps(self.cart), context=self.context).context


def main(address: str) -> None:
    """Let two tabs write concurrently, and read the merged cart."""
    with chord.connect(address) as client:
        phone, laptop = Browser(client, "cart:ada"), Browser(client, "cart:ada")
        phone.add("tea")
        laptop.read()
        phone.add("milk")  # concurrent with the next write
        laptop.add("honey")
        print("side by side:", len(client.get("cart:ada").siblings))
        print("merged:", phone.read())
        phone.add("tea")  # its context covers both carts, so it resolves them
        print("settled:", client.get("cart:ada").value.decode())


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["127.0.0.1:9000"]))
