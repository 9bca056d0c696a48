"""`chord debug bundle`: complete, and without any key or value of the ring."""

from __future__ import annotations

import base64
import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from chord.client.blocking import connect
from chord.ids import Circle
from tests.support.cli import CannedRing, Run
from tests.support.real_rings import HANG_S, ring_of
from tests.support.schemas import check_shape

PARTS = ["about", "config", "status", "members", "ring", "fingers", "transfers", "check"]


def read(path: Path) -> dict[str, Any]:
    """Return the parts of a bundle."""
    with tarfile.open(path) as tar:
        files = {Path(member.name).stem: tar.extractfile(member) for member in tar.getmembers()}
        return {name: json.load(file) for name, file in files.items() if file is not None}


def test_bundle_has_every_part(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bug.tar.gz"
    shape = run("debug", "bundle", str(path), "--json").json("bundle")
    assert (shape["parts"], shape["failed"], shape["bytes"]) == (PARTS, [], path.stat().st_size)
    parts = read(path)
    assert list(parts) == PARTS
    for name in ("config", "status", "members", "ring", "transfers", "check"):
        check_shape(name, parts[name])
    assert len(parts["fingers"]["vnodes"]) == 7
    assert {"version", "platform", "python", "written"} <= set(parts["about"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_bundle_is_written_if_no_node_answers(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.close()
    path = tmp_path / "bug.tar.gz"
    ended = run("debug", "bundle", str(path), "--timeout", "0.1")
    assert ended.code == 0
    assert ended.err.startswith("ring: ")
    assert read(path)["ring"]["error"]["message"]


def test_bundle_has_the_error_of_a_wrong_configuration(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHORD_VNODES", "many")
    shape = run("debug", "bundle", str(tmp_path / "bug.tar.gz"), "--json").json("bundle")
    assert shape["failed"] == ["config"]
    assert "not a number" in read(tmp_path / "bug.tar.gz")["config"]["error"]["message"]


def test_bundle_that_cannot_be_written_is_exit_2(run: Run, tmp_path: Path) -> None:
    ended = run("debug", "bundle", str(tmp_path / "no" / "bug.tar.gz"))
    assert ended.code == 2
    assert "cannot write" in ended.err


@pytest.mark.slow
def test_bundle_of_a_filled_ring_has_no_key_and_no_value(tmp_path: Path) -> None:
    pairs = [(b"secret-key-%d" % n, b"private-value-%d" % n) for n in range(100)]
    path = tmp_path / "bug.tar.gz"
    with ring_of(4) as ring:
        with connect(ring.entry, timeout_s=HANG_S) as client:
            assert not client.put_many(pairs).errors
            client.put(pairs[0][0], b"private-value-of-a-sibling", no_context=True)
        assert ring("debug", "bundle", str(path)).code == 0
    parts = read(path)
    assert list(parts) == PARTS
    assert sum(node["keys"] for node in parts["status"]["nodes"]) >= 200, "two copies of each key at least"
    with tarfile.open(path) as tar:
        files = [file.read() for member in tar.getmembers() if (file := tar.extractfile(member))]
    content = b"".join(files)
    for secret in (b"secret-key", b"private-value"):
        for form in (secret, base64.b64encode(secret)[:12], secret.hex().encode()):
            assert form not in content
    circle = Circle(160)
    points = [circle.hash(key) for key, _ in pairs]
    assert not [point for point in points if circle.hex(point).encode() in content or str(point).encode() in content]
    assert b"127.0.0.1" in content, "the bundle was read"
