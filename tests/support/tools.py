"""Programs of the operating system that tests use if they are installed."""

from __future__ import annotations

import os
import shutil

import pytest


def require_tool(name: str, package: str) -> str:
    """Return the path of a program, or skip the test.

    With CHORD_SYSTEM_TOOLS=required in the environment, the test fails instead.
    """
    path = shutil.which(name)
    if path is not None:
        return path
    text = f"{name} is not installed: apt install {package}"
    if os.environ.get("CHORD_SYSTEM_TOOLS") == "required":
        pytest.fail(text)
    pytest.skip(text)
