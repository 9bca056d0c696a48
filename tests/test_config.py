"""Configuration: constants and their fingerprint, presets, and refused values."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest

from chord import config
from chord.config import PRESETS, Limits, NodeConfig, Preset, RingConstants, Timing, from_mapping, split_address
from chord.errors import ConfigError


def test_fingerprint_differs_with_every_constant() -> None:
    base = RingConstants()
    others = [RingConstants(bits=8), RingConstants(successors=16), RingConstants(cluster="other")]
    assert len({each.fingerprint for each in (base, *others)}) == 4
    assert base.fingerprint == RingConstants(160, 8, 3, "chord").fingerprint
    assert len(base.fingerprint) == 16
    assert int(base.fingerprint, 16) >= 0


def test_protocol_version_is_part_of_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    before = RingConstants().fingerprint
    monkeypatch.setattr(config, "PROTOCOL_VERSION", config.PROTOCOL_VERSION + 1)
    assert RingConstants().fingerprint != before


@pytest.mark.parametrize(
    "wrong",
    [
        {"bits": 2},
        {"bits": 161},
        {"successors": 0},
        {"successors": 65},
        {"replicas": 0},
        {"replicas": 17, "successors": 64},
        {"replicas": 3, "successors": 1},
        {"cluster": ""},
        {"cluster": "x" * 65},
    ],
)
def test_constants_out_of_bounds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RingConstants(**wrong)


@pytest.mark.parametrize(
    "right",
    [
        {"bits": 3},
        {"bits": 160},
        {"successors": 1, "replicas": 2},
        {"successors": 64},
        {"replicas": 1},
        {"replicas": 16, "successors": 15},
    ],
)
def test_constants_at_their_bounds_are_accepted(right: dict[str, Any]) -> None:
    constants = RingConstants(**right)
    assert constants.circle.bits == constants.bits


def test_presets_have_the_specified_times() -> None:
    local, lan, wan = PRESETS["local"], PRESETS["lan"], PRESETS["wan"]
    assert (local.stabilize_s, local.finger_s, local.self_lookup_rounds) == (0.25, 0.25, 4)
    assert (lan.stabilize_s, lan.finger_s, lan.self_lookup_rounds) == (1.0, 1.0, 4)
    assert (wan.stabilize_s, wan.finger_s, wan.self_lookup_rounds) == (15.0, 15.0, 4)
    timeouts = [(t.timeout_floor_s, t.timeout_stranger_s, t.timeout_cap_s) for t in (local, lan, wan)]
    assert timeouts == [(0.1, 0.5, 2.0), (0.1, 0.5, 5.0), (0.3, 2.0, 8.0)]
    assert [(t.suspect_misses, t.dead_misses) for t in (local, lan, wan)] == [(1, 3), (1, 3), (1, 5)]


TIMES = [name for name in Timing.__struct_fields__ if name.endswith("_s")]


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf")])
def test_times_must_be_positive_numbers(name: str, value: float) -> None:
    with pytest.raises(ConfigError):
        Timing(**{name: value})


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout_floor_s": 0.6},
        {"timeout_stranger_s": 6.0},
        {"timeout_cap_s": 0.4},
        {"suspect_misses": 0},
        {"suspect_misses": 4},
        {"dead_misses": 0},
        {"dead_refusals": 0},
        {"self_lookup_rounds": 0},
    ],
)
def test_contradictory_timings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Timing(**wrong)


@pytest.mark.parametrize("name", Limits.__struct_fields__)
def test_every_limit_is_positive(name: str) -> None:
    lowest = 0 if name.startswith("reap_log") else 1
    with pytest.raises(ConfigError, match=name):
        Limits(**{name: lowest - 1})


def test_reap_log_limits_may_be_zero_and_are_in_order() -> None:
    assert Limits(reap_log_entries=0, reap_log_entries_max=0).reap_log_entries_max == 0
    assert Limits(reap_log_entries=7, reap_log_entries_max=7).reap_log_entries == 7
    with pytest.raises(ConfigError, match="reap_log_entries must be at most reap_log_entries_max"):
        Limits(reap_log_entries=8, reap_log_entries_max=7)


@pytest.mark.parametrize(
    "wrong",
    [
        {"key_bytes_max": 1025},
        {"value_bytes_max": (1 << 20) + 1},
        {"siblings_max": 65},
        {"bulk_from_bytes": 64 * 1024},
        {"frame_control_bytes_max": 8 * 1024},
        {"frame_bulk_bytes_max": 1 << 24},
        {"record_bytes_max": 2 << 20},
    ],
)
def test_contradictory_limits_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Limits(**wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"listen": "127.0.0.1"}, "HOST:PORT"),
        ({"join": ("127.0.0.1:0",)}, "port 0"),
        ({"advertise": "127.0.0.1:0"}, "port 0"),
        ({"advertise": "nowhere"}, "HOST:PORT"),
        ({"vnodes": 0}, "vnodes"),
        ({"vnodes": 65}, "vnodes"),
        ({"id": 5, "vnodes": 2}, "one vnode"),
        ({"id": 256, "ring": RingConstants(bits=8)}, "0 to 255"),
        ({"id": -1}, "id -1"),
        ({"name": ""}, "name"),
        ({"name": "x" * 65}, "name"),
    ],
)
def test_node_config_that_cannot_start_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        NodeConfig(**wrong)


def test_node_of_a_toy_ring_takes_its_id() -> None:
    assert NodeConfig(id=255, ring=RingConstants(bits=8)).id == 255


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:9000", ("127.0.0.1", 9000)),
        ("n7:1", ("n7", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_addresses_are_host_and_port(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize(
    "address",
    ["", ":", "9000", ":9000", "host:", "host:-1", "host:65536", "host:9e3", "host:٣", "host:1 ", "x" * 260 + ":1"],
)
def test_other_strings_are_no_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        split_address(address)


@pytest.mark.parametrize("host", ["a..b", ".a", "x" * 64, "ü..x", "ü" * 70, ".", "a.."])
def test_invalid_host_name_is_no_address(host: str) -> None:
    """A resolver would raise a `UnicodeError`, which users would take for a bug."""
    with pytest.raises(ConfigError, match="with a valid host name"):
        split_address(f"{host}:1")
    for near in ("x" * 63, "a.b.", "bücher.example"):
        assert split_address(f"{near}:1") == (near, 1)


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", "a\x1b[2J"])
def test_name_must_be_printable(name: str) -> None:
    with pytest.raises(ConfigError, match="1 to 64 printable characters"):
        NodeConfig(name=name)


def test_list_in_place_of_an_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a string, HOST:PORT"):
        split_address(["host:1"])  # type: ignore[arg-type]


@pytest.mark.parametrize("struct", [RingConstants, Timing, Limits, NodeConfig])
def test_field_descriptions_have_the_order_of_the_fields(struct: type[msgspec.Struct]) -> None:
    """The reference page is made of these lines."""
    lines = inspect.cleandoc(struct.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0].splitlines()
    described = [name for line in lines if line[4] != " " for name in line.partition(":")[0].strip().split(", ")]
    assert described == list(struct.__struct_fields__)


# -- from a file ----------------------------------------------------------------------------------------


def test_mapping_overrides_the_values_of_its_preset() -> None:
    made = from_mapping(
        {"listen": "127.0.0.1:9000", "preset": "wan", "timing": {"dead_misses": 7}, "ring": {"bits": 8}}
    )
    assert made.listen == "127.0.0.1:9000"
    assert made.timing.stabilize_s == 15.0
    assert made.timing.dead_misses == 7
    assert made.preset == "wan"
    assert made.ring.bits == 8
    assert from_mapping({}) == NodeConfig()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"listen": 9000}, "listen"),
        ({"lissten": "127.0.0.1:9000"}, "lissten"),
        ({"ring": {"bit": 8}}, "bit"),
        ({"timing": {"stabilise_s": 1}}, "stabilise_s"),
        ({"limits": {"calls": 1}}, "calls"),
        ({"preset": "moon"}, "preset"),
        ({"preset": ["lan"]}, "preset"),
        ({"vnodes": "three"}, "vnodes"),
        ({"ring": {"bits": 8.5}}, "bits"),
        ({"ring": {"bits": 1}}, "bits"),
        ({"timing": 5}, "timing"),
        ({"timing": {"stabilize_s": "fast"}}, "stabilize_s"),
        ({"limits": {"siblings_max": 1000}}, "siblings_max"),
        ({"join": "127.0.0.1:9000"}, "join"),
    ],
)
def test_invalid_mapping_names_its_key(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        from_mapping(wrong)


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_sets_the_timing(preset: Preset) -> None:
    assert NodeConfig(preset=preset).timing == PRESETS[preset]
    for own in (Timing(stabilize_s=7), *PRESETS.values()):
        assert NodeConfig(preset=preset, timing=own).timing == own
    assert msgspec.structs.replace(NodeConfig(preset=preset), name="n").timing == PRESETS[preset]


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_wildcard_address_needs_an_advertised_one(host: str) -> None:
    for fields in ({"listen": f"{host}:9000"}, {"advertise": f"{host}:9000"}, {"join": (f"{host}:9000",)}):
        with pytest.raises(ConfigError, match="other nodes can reach"):
            NodeConfig(**fields)  # type: ignore[arg-type]
    assert NodeConfig(listen=f"{host}:9000", advertise="10.0.0.1:9000").listen == f"{host}:9000"


def test_empty_data_directory_is_refused() -> None:
    with pytest.raises(ConfigError, match="data_dir is empty"):
        NodeConfig(data_dir="")
