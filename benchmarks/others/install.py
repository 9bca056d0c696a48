"""Install each compared system into its own environment under out/others.

pip installs packages in a venv, and Debian packages are unpacked. The project's environment and the operating system
stay as they are. The next run uses the same environments.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import chord
from benchmarks.others.processes import ROOT
from benchmarks.others.system import Home, System, here

INSTALL_S = 600.0


class CannotInstall(Exception):
    """The system cannot be installed on this machine; the message has the reason."""


def install(system: System, base: Path) -> Home:
    """Install a system if it is missing, and return its place.

    Args:
        base: a directory for all systems; created if it is missing.

    Raises:
        CannotInstall: pip or apt cannot install a package of the system.
    """
    if not system.pip and not system.debian:
        return here(chord.__version__)
    directory = (base / system.client).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    python, root = here("").python, None
    version = f"python {platform.python_version()}"
    if system.pip:
        python = str(_environment(directory / "venv", system.pip))
        version = system.pip[0].partition("==")[2]
    if system.debian:
        root = directory / "root"
        version = _unpack(directory, root, system.debian)
    return Home(python, root, version)


def _environment(venv: Path, packages: tuple[str, ...]) -> Path:
    """Make a venv with these packages, unless one with the same packages exists.

    Returns:
        the interpreter of the venv.
    """
    python, stamp = venv / "bin" / "python", venv / "installed"
    wanted = "\n".join(packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    try:
        pip = _project_tool().create(str(venv), str(python))
    except SystemExit:  # the tool has printed the reason
        raise CannotInstall("no environment with pip can be made") from None
    run([*pip, "install", "--quiet", "--disable-pip-version-check", *packages])
    stamp.write_text(wanted)
    return python


def _project_tool() -> Any:
    """Load tools/venv.py by its path: the standard library has a module `venv`, too."""
    spec = importlib.util.spec_from_file_location("chord_tools_venv", ROOT / "tools" / "venv.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _unpack(directory: Path, root: Path, packages: tuple[str, ...]) -> str:
    """Fetch Debian packages with their missing dependencies, and unpack them.

    Args:
        directory: a directory for the fetched archives.
        root: the directory to unpack into; not fetched again if it is complete.
        packages: the names of the packages.

    Returns:
        the version of the first package.
    """
    stamp = root / "unpacked"
    if not stamp.exists():
        archives = directory / "archives"
        (archives / "partial").mkdir(parents=True, exist_ok=True)
        run(
            ["apt-get", "install", "--yes", "--download-only", "--reinstall", "--no-install-recommends", "--quiet",
             "--option", "Debug::NoLocking=1", "--option", f"Dir::Cache::archives={archives}/", *packages]
        )  # fmt: skip
        for archive in sorted(archives.glob("*.deb")):
            run(["dpkg-deb", "--extract", str(archive), str(root)])
        first = next(archives.glob(f"{packages[0]}_*.deb"))
        stamp.write_text(run(["dpkg-deb", "--field", str(first), "Version"]).strip())
    return stamp.read_text()


def run(command: list[str]) -> str:
    """Run a command quietly, and return its output.

    Raises:
        CannotInstall: the command fails, is missing, or takes too long.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S, check=False,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstall(f"{command[0]}: {error}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise CannotInstall(f"{' '.join(command[:2])} … exit {done.returncode}: {said[-1]}")
    return done.stdout
