"""The vendored files are those of their manifests, with a version, a licence and its text."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("chord/web/static/vendor", "tests/web/browser/vendor")


@pytest.mark.parametrize("folder", FOLDERS)
def test_vendored_files_have_the_hashes_of_the_manifest(folder: str) -> None:
    packages = json.loads((ROOT / folder / "manifest.json").read_text())
    hashes = {file["file"]: file["sha256"] for one in packages for file in one["files"]}
    present = {path.name for path in (ROOT / folder).iterdir()} - {"manifest.json"}
    assert present == set(hashes)
    for name, expected in hashes.items():
        assert hashlib.sha256((ROOT / folder / name).read_bytes()).hexdigest() == expected, name


@pytest.mark.parametrize("folder", FOLDERS)
def test_vendored_packages_name_version_and_licence(folder: str) -> None:
    for one in json.loads((ROOT / folder / "manifest.json").read_text()):
        assert one["version"]
        assert one["licence"]
        assert any(file["file"].endswith("-LICENSE.txt") for file in one["files"])
