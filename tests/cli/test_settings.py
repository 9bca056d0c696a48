"""The sources of a node's configuration: flag > CHORD_* > file > default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chord.cli.output import Failure
from chord.cli.settings import VARIABLES, command_for, node_config
from chord.config import Limits, NodeConfig, RingConstants, Timing
from tests.support.cli import Run

FILE = """
listen = "127.0.0.1:9001"
join = ["127.0.0.1:9000"]
name = "from the file"
vnodes = 2
preset = "wan"

[ring]
bits = 32
cluster = "file"

[timing]
finger_s = 7.0
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(FILE)
    return path


def test_configuration_has_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = node_config({}, None, {})
    assert (config.listen, config.preset, config.ring.bits, config.vnodes) == ("127.0.0.1:0", "lan", 160, 1)


def test_flag_precedes_variable_file_and_default(file: Path) -> None:
    from_file = node_config({}, file, {})
    assert (from_file.name, from_file.ring.cluster, from_file.vnodes) == ("from the file", "file", 2)
    assert (from_file.timing.stabilize_s, from_file.timing.finger_s) == (15.0, 7.0), "the preset, then its own lines"
    environ = {"CHORD_NAME": "from the environment", "CHORD_CLUSTER": "environment", "CHORD_JOIN": "a:1, b:2"}
    from_environment = node_config({}, file, environ)
    assert (from_environment.name, from_environment.ring.cluster) == ("from the environment", "environment")
    assert (from_environment.join, from_environment.ring.bits) == (("a:1", "b:2"), 32)
    from_flag = node_config({"name": "from a flag", "cluster": "flag", "join": ("c:3",)}, file, environ)
    assert (from_flag.name, from_flag.ring.cluster, from_flag.join) == ("from a flag", "flag", ("c:3",))


def test_chord_toml_in_the_directory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chord.toml").write_text('name = "here"\n')
    assert node_config({}, None, {}).name == "here"


def test_id_may_be_as_wide_as_the_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wide = (1 << 160) - 1
    assert node_config({"id": wide}, None, {}).id == wide
    assert node_config({}, None, {"CHORD_ID": hex(wide)}).id == wide


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('nmae = "typo"', "nmae"),
        ("[ring]\nbit = 8", "bit"),
        ("[timing]\nstabilise_s = 1.0", "stabilise_s"),
        ("vnodes = 0", "vnodes must be between 1 and 64"),
        ('vnodes = "two"', "vnodes"),
        ('preset = "moon"', "preset must be one of"),
        ("ring = 3", "ring"),
        ("id = 256\n[ring]\nbits = 8", "not on a circle of 8 bits"),
        ("= nonsense", "node.toml"),
        ('listen = "nowhere"', "HOST:PORT"),
    ],
)
def test_invalid_file_is_refused_with_the_key(file: Path, text: str, words: str) -> None:
    file.write_text(text)
    with pytest.raises(Failure, match=words) as caught:
        node_config({}, file, {})
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("environ", [{"CHORD_VNODES": "many"}, {"CHORD_ID": "0xZ"}, {"CHORD_PRESET": "moon"}])
def test_invalid_variable_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, Any]) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Failure) as caught:
        node_config({}, None, environ)
    assert caught.value.exit_code == 2


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot open"):
        node_config({}, tmp_path / "none.toml", {})


def test_config_show_names_the_origin_of_every_value(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHORD_VNODES", "4")
    monkeypatch.setenv("CHORD_CLUSTER", "environment")
    ended = run("config", "show", "--config", str(file), "--cluster", "option", "--json")
    found = {one["key"]: (one["value"], one["origin"], one["source"]) for one in ended.json("config")["settings"]}
    assert found["vnodes"] == (4, "environment", "CHORD_VNODES"), "a variable precedes the file"
    assert found["ring.cluster"] == ("option", "option", "--cluster"), "an option precedes both"
    assert found["ring.bits"] == (32, "file", str(file))
    assert found["timing.finger_s"] == (7.0, "file", str(file)), "the file precedes the preset"
    assert found["timing.stabilize_s"] == (15.0, "preset", "wan")
    assert found["timing.grace_s"] == (86400.0, "default", None), "the preset does not change it"
    assert (found["id"], found["join"]) == ((None, "default", None), (["127.0.0.1:9000"], "file", str(file)))
    tables = {"ring": RingConstants, "timing": Timing, "limits": Limits}
    flat = {f"{table}.{name}" for table, kind in tables.items() for name in kind.__struct_fields__}
    assert set(found) == {*NodeConfig.__struct_fields__} - {*tables} | flat


def test_config_show_as_text_has_origins_on_request(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    with_origin = [line.split("\t") for line in run("config", "show", "--origin", "--id", "0xff").out.splitlines()]
    assert with_origin[0] == ["key", "value", "origin"]
    assert ["id", "255", "option --id"] in with_origin
    assert ["join", "-", "default"] in with_origin
    plain = [line.split("\t") for line in run("config", "show", "--id", "0xff").out.splitlines()]
    assert plain == [row[:2] for row in with_origin]


def test_config_show_refuses_what_a_node_refuses(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "typo.toml"
    path.write_text('nmae = "typo"\n')
    assert "unknown key nmae" in run("config", "show", "--config", str(path)).err
    assert run("config", "show", "--listen", "nowhere").code == 2


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({}, ""),
        ({"data_dir": "a ring/n2"}, "chord node --data 'a ring/n2' --listen 127.0.0.1:9002"),
        (
            {"data_dir": "n2", "name": "n2", "preset": "local", "vnodes": 2, "members": "on", "http": "127.0.0.1:9102",
             "ring": RingConstants(bits=16, successors=4, replicas=2)},
            "chord node --data n2 --listen 127.0.0.1:9002 --name n2 --preset local --vnodes 2 --members on "
            "--http 127.0.0.1:9102 --bits 16 --successors 4 --replicas 2",
        ),
    ],
)  # fmt: skip
def test_command_for_a_peer_has_all_that_is_not_usual(changes: dict[str, Any], command: str) -> None:
    assert command_for(NodeConfig(listen="127.0.0.1:9002", **changes)) == command
