"""The sentence at the end of `chord lab compare`."""

from __future__ import annotations

from chord.lab.experiments.common import Keys, given_keys, made_keys
from chord.lab.experiments.compare import ASKED_MAX, advice, experiment


def advised(keys: Keys, *schemes: str, nodes: int = 4, weights: tuple[float, ...] = ()) -> str:
    """Return the advice on placing keys by some schemes."""
    return advice(experiment(keys, schemes, nodes, nodes + 1, weights).run("standard", 1))


def test_advice_is_the_even_scheme_with_the_least_memory() -> None:
    said = advised(made_keys(20_000, 1), "mod", "jump", "ring", "ring-100", "rendezvous")
    assert said.startswith("For these 20,000 keys use rendezvous: its fullest node has 1.0")
    assert said.endswith("of them (ideal: 20.0%).")


def test_advice_without_an_even_scheme_is_the_most_even_one() -> None:
    assert " use ring-100: its fullest node has 1." in advised(made_keys(20_000, 1), "ring", "ring-100", nodes=8)


def test_advice_for_many_nodes_asks_no_node_in_turn() -> None:
    keys, nodes = made_keys(20_000, 1), ASKED_MAX + 1
    assert " use ring-100: " in advised(keys, "rendezvous", "ring-100", nodes=nodes)
    assert " use rendezvous: " in advised(keys, "rendezvous", "ring-100", nodes=nodes - 1)


def test_advice_heeds_the_weights() -> None:
    said = advised(made_keys(20_000, 1), "rendezvous", "rendezvous-weighted", nodes=3, weights=(1.0, 1.0, 2.0))
    assert " use rendezvous-weighted: " in said


def test_advice_without_a_fitting_scheme_names_two() -> None:
    said = advised(made_keys(1_000, 1), "mod", "jump")
    assert said.startswith("If nodes come and go, compare rendezvous and ring-100:")


def test_advice_on_a_frequent_key_is_to_split_it() -> None:
    keys = given_keys("keys.txt", b"hot\n" * 900 + b"\n".join(b"user:%d" % n for n in range(100)))
    said = advised(keys, "rendezvous", nodes=5)
    assert said == (
        "Split or cache the most frequent key: it has 90.0% of the requests, and the fair share of a node is 20.0%."
    )
