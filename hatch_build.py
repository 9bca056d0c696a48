"""A build hook: compile the modules that pyproject.toml names with mypyc if `CHORD_COMPILED=1` is set.

Without the variable the wheel is pure Python. A compiled wheel also has the sources of its compiled modules, which
tracebacks show.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def is_wanted() -> bool:
    """Return whether the environment asks for a compiled wheel."""
    return os.environ.get("CHORD_COMPILED") == "1"


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the compiled modules to the wheel."""

    _directory: str | None = None

    def dependencies(self) -> list[str]:
        """Return what a compiled build needs; mypyc also reads the types of the runtime dependencies."""
        if not is_wanted():
            return []
        return ["mypy>=1.11", "setuptools", *self.metadata.core.dependencies]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the modules, unless the build is editable.

        Args:
            version: "standard" or "editable".
            build_data: the description of the wheel, to which this method adds the extension modules.
        """
        if not is_wanted() or version == "editable":
            return
        self._directory = tempfile.mkdtemp(prefix="chord-compiled-")
        found = compiled(self.config["modules"], Path(self.root), Path(self._directory))
        build_data["force_include"].update({str(path): str(path.relative_to(self._directory)) for path in found})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the compiled files. The wheel has copies."""
        if self._directory is not None:
            shutil.rmtree(self._directory)


def compiled(modules: list[str], root: Path, out: Path) -> list[Path]:
    """Compile modules, given as paths below `root`; return the extension modules, at their places below `out`."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    before = Path.cwd()
    os.chdir(root)
    try:
        extensions = mypycify(modules, opt_level="3", debug_level="0", target_dir=str(out / "temporary"))
        build = Distribution({"name": "chord", "ext_modules": extensions}).get_command_obj("build_ext")
        build.build_lib, build.build_temp = str(out), str(out / "temporary")  # type: ignore[attr-defined]
        build.ensure_finalized()
        build.run()
    finally:
        os.chdir(before)
    return sorted(out.rglob("*.so"))
