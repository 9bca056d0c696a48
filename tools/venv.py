"""Build .venv with chord and the packages for its checks, unless it is current.

The script runs on any python3, so that an old one gets a message instead of a traceback. It needs
pip for some python3. Debian's python3 without python3-venv has no `ensurepip`. In that case the
environment is made without pip, and `pip --python` installs into it from outside.
"""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
STAMP = os.path.join(VENV, ".installed")
PYTHON = os.path.join(VENV, "bin", "python")
OLDEST = (3, 11)


def say(text: str) -> None:
    """Print a message to standard error."""
    sys.stderr.write("chord: " + text + "\n")


def run(command: "list[str]") -> "tuple[bool, str]":
    """Run a command without showing its output.

    Returns:
        whether the command succeeded, and its output.
    """
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT)
    return done.returncode == 0, done.stdout.decode("utf-8", "replace")


def is_fresh() -> bool:
    """Return whether .venv can stay: it is newer than pyproject.toml and has chord."""
    project = os.path.join(ROOT, "pyproject.toml")
    return (
        os.path.exists(STAMP)
        and os.path.getmtime(STAMP) >= os.path.getmtime(project)
        and run([PYTHON, "-c", "import chord"])[0]
    )


def create(venv: str = VENV, python: str = PYTHON) -> "list[str]":
    """Create a Python environment; return the pip command that installs into it.

    Args:
        venv: the directory of the environment.
        python: its interpreter.
    """
    made, _ = run([sys.executable, "-m", "venv", "--clear", venv])
    if made:
        return [python, "-m", "pip"]
    made, out = run([sys.executable, "-m", "venv", "--clear", "--without-pip", venv])
    if not made:
        say("python3 -m venv failed:\n" + out)
        sys.exit(1)
    for pip in ([sys.executable, "-m", "pip"], ["pip3"], ["pip"]):
        try:
            works, _ = run([*pip, "--python", python, "--version"])
        except OSError:
            continue
        if works:
            return [*pip, "--python", python]
    say("no pip 22.3 or newer was found for " + sys.executable + ". Install it: apt install python3-pip")
    sys.exit(1)


def main() -> int:
    """Build .venv unless it is current; return the exit code."""
    if sys.version_info < OLDEST:
        say(
            f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed, and {sys.executable} is Python "
            f"{sys.version.split()[0]}. Name another one: make PYTHON=python3.12 …"
        )
        return 1
    if is_fresh():
        return 0
    say("building .venv (once; half a minute) …")
    pip = create()
    options = ["install", "--quiet", "--disable-pip-version-check", "--editable", ROOT + "[dev]"]
    installed, out = run([*pip, *options])
    if not installed:
        say("pip could not install the packages:\n" + out)
        return 1
    with open(STAMP, "w") as stamp:
        stamp.write(sys.version + "\n")
    say(".venv is ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
