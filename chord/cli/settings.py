"""The configuration of a node, from all of its sources.

A flag wins over a `CHORD_*` variable, a variable over --config or ./chord.toml, and the file over the default.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from chord.cli.failures import USAGE, command_path
from chord.cli.inputs import CONFIG_BYTES_MAX, read_limited
from chord.cli.output import Failure
from chord.cli.target import to_number
from chord.config import PRESETS, NodeConfig, from_mapping
from chord.errors import ConfigError
from chord.views.nodes import ConfigSetting

DEFAULT_FILE = Path("chord.toml")
RING_KEYS = ("bits", "successors", "replicas", "cluster")
KEYS = (
    "listen", "advertise", "join", "name", "vnodes", "id", "data_dir", "preset", "members", "http", *RING_KEYS,
)  # fmt: skip
VARIABLES = {key: f"CHORD_{key.removesuffix('_dir').upper()}" for key in KEYS}
OPTIONS = {key: f"--{key.removesuffix('_dir')}" for key in KEYS}
_NUMBERS = ("vnodes", "id", "bits", "successors", "replicas")


def node_config(flags: Mapping[str, Any], file: Path | None, environ: Mapping[str, str] = os.environ) -> NodeConfig:
    """Return a node's configuration from options, variables and a file, in this order of precedence.

    Args:
        flags: the values of options by the names in `KEYS`. None, or an empty join, means that the option was not
            given.
        file: a TOML file with the fields of `NodeConfig`; None: `./chord.toml`, if it exists.
        environ: the environment variables.

    Raises:
        Failure: exit 2: an unknown key, an invalid value, or values that contradict each other.
    """
    values = _read(file)
    wrong_in_file = _what_is_wrong(values)
    for key, value in _from_environment(environ).items():
        _put(values, key, value)
    try:
        return from_flags(flags, values)
    except Failure as failure:
        if failure.message == wrong_in_file:
            failure.message = f"{file or DEFAULT_FILE}: {failure.message}"
        raise


def settings_of(
    flags: Mapping[str, Any], file: Path | None, environ: Mapping[str, str] = os.environ
) -> list[ConfigSetting]:
    """Return every value of a node's configuration with its origin, such as an option or a file.

    Args:
        flags: the values of options by the names in `KEYS`. None, or an empty join, means that the option was not
            given.
        file: a TOML file with the fields of `NodeConfig`; None: `./chord.toml`, if it exists.
        environ: the environment variables.

    Raises:
        Failure: exit 2: an unknown key, an invalid value, or values that contradict each other.
    """
    config = node_config(flags, file, environ)
    in_file, path = _read(file), str(file or DEFAULT_FILE)
    found = []
    for key, value in _flat(msgspec.to_builtins(config)):
        table, _, name = key.rpartition(".")
        origin = "default"
        source: str | None = None
        if table == "timing" and value != getattr(PRESETS["lan"], name):
            origin, source = "preset", config.preset
        written = in_file.get(table, {}) if table else in_file
        if name in written:
            origin, source = "file", path
        if name in KEYS and environ.get(VARIABLES[name]):
            origin, source = "environment", VARIABLES[name]
        if name in KEYS and flags.get(name) not in (None, ()):
            origin, source = "option", OPTIONS[name]
        found.append(ConfigSetting(key, value, origin, source))
    return found


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values with their keys, such as `ring.bits`; tables are last, as in a file."""
    for key, value in sorted(values.items(), key=lambda item: isinstance(item[1], dict)):
        if isinstance(value, dict):
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield key, value


def _what_is_wrong(values: Mapping[str, Any]) -> str | None:
    try:
        from_mapping(dict(values))
    except ConfigError as error:
        return error.message
    return None


def from_flags(flags: Mapping[str, Any], beneath: Mapping[str, Any] | None = None) -> NodeConfig:
    """Return a node's configuration from options and from values beneath them, without variables or a file.

    Args:
        flags: the values of options by the names in `KEYS`. None, or an empty join, means that the option was not
            given.
        beneath: values in the structure of a TOML file, which options override; None: none.

    Raises:
        Failure: exit 2: an unknown key, an invalid value, or values that contradict each other.
    """
    values = dict(beneath or {})
    for key, value in flags.items():
        if value not in (None, ()):
            _put(values, key, value)
    try:
        return from_mapping(values)
    except ConfigError as error:
        raise Failure(error.message, f"See: {command_path()} --help", USAGE, "config") from None


def _read(file: Path | None) -> dict[str, Any]:
    path = file or DEFAULT_FILE
    if file is None and not path.exists():
        return {}
    import tomllib  # most commands and nodes have no such file

    try:
        with path.open("rb") as source:
            return tomllib.loads(read_limited(source, CONFIG_BYTES_MAX, str(path)).decode())
    except OSError as error:
        hint = "Name a file that can be read: --config FILE"
        raise Failure(f"cannot open {path} ({str(error.strerror).lower()})", hint, USAGE, "config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: {error}", "Correct the file, which must be TOML", USAGE, "config") from None


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, variable in VARIABLES.items():
        text = environ.get(variable)
        if not text:
            continue
        if key in _NUMBERS:
            number = to_number(text)
            if number is None:
                raise Failure(f"{variable} is {text!r}, not a number", f"Set {variable} to a number", USAGE, "config")
            found[key] = number
        else:
            found[key] = tuple(text.replace(",", " ").split()) if key == "join" else text
    return found


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    if key in RING_KEYS:
        ring = values.setdefault("ring", {})
        if isinstance(ring, dict):  # if not, from_mapping reports it
            ring[key] = value
    else:
        values[key] = value


def command_for(config: NodeConfig) -> str:
    """Return the command that starts a peer of `chord up` again, alone; "" if it has no data directory.

    The command has all flags with other values than the defaults of `chord node`. A data directory keeps the constants
    of its ring, and a start without them would be refused.
    """
    if config.data_dir is None:
        return ""
    words = ["chord", "node", "--data", config.data_dir, "--listen", config.listen]
    usual = NodeConfig()
    for settings, normal in ((config, usual), (config.ring, usual.ring)):
        for name in ("name", "preset", "vnodes", "members", "http", "bits", "successors", "replicas", "cluster"):
            value = getattr(settings, name, None)
            if value is not None and value != getattr(normal, name):
                words += [f"--{name}", str(value)]
    return shlex.join(words)
