"""Renew the vendored files of the page and of its tests from the npm registry.

`python tools/vendor.py` fetches the versions of the manifests with `npm pack`, and writes their files and the SHA-256
of each into the manifest. `tests/web/test_vendor.py` compares the files with the manifests.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
MANIFESTS: Final = (
    ROOT / "chord" / "web" / "static" / "vendor" / "manifest.json",
    ROOT / "tests" / "web" / "browser" / "vendor" / "manifest.json",
)


def fetch(package: str, version: str, folder: Path) -> Path:
    """Fetch a package, and return the folder of its files."""
    packed = subprocess.run(
        ["npm", "pack", "--silent", f"{package}@{version}"], cwd=folder, capture_output=True, text=True, check=True
    )
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        archive.extractall(folder / package, filter="data")
    return folder / package / "package"


def renew(manifest: Path) -> None:
    """Renew the files of a manifest."""
    packages: list[dict[str, Any]] = json.loads(manifest.read_text())
    for one in packages:
        with TemporaryDirectory() as name:
            files = fetch(one["package"], one["version"], Path(name))
            for file in one["files"]:
                content = (files / file["source"]).read_bytes()
                (manifest.parent / file["file"]).write_bytes(content)
                file["sha256"] = hashlib.sha256(content).hexdigest()
    manifest.write_text(json.dumps(packages, indent=2) + "\n")


def main() -> None:
    """Renew all manifests."""
    for manifest in MANIFESTS:
        renew(manifest)


if __name__ == "__main__":
    main()
