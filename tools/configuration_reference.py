"""Write docs/reference/configuration.md from the structs themselves. A test holds the file against them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
import msgspec
from docstrings import REFERENCE, led, page, parsed, table

from chord import cli
from chord.cli.node import node_command
from chord.cli.settings import KEYS, RING_KEYS, VARIABLES
from chord.config import PRESETS, Limits, NodeConfig, RingConstants, Timing

TARGET = REFERENCE / "configuration.md"

HEAD = """
# Configuration

Generated from the code by `tools/configuration_reference.py`; change the docstrings of `chord/config.py`.

`chord node` takes each value from the first of these places that has it:

1. the flag,
2. the variable; one that is empty is none,
3. the file: TOML, named by `--config FILE` or `CHORD_CONFIG`, else `./chord.toml` if there is one,
4. the default.

```toml
listen = "0.0.0.0:9000"
advertise = "ada.example:9000"
join = ["grace.example:9000", "edsger.example:9000"]
data_dir = "/var/lib/chord"
preset = "wan"

[ring]
cluster = "guests"

[timing]
anti_entropy_s = 30

[limits]
repair_bytes_s = 1_000_000
```

What a place says of a key replaces all that later ones say of it, lists too. A key that is not on this page, a value
of another type and values that contradict each other are refused: exit code 2, and nothing is started. Numbers in
variables are decimal or `0xHEX`. Several addresses stand in `CHORD_JOIN` with spaces or commas between them, and each
after a `--join` of its own. `[timing]` and `[limits]` can be changed in the file only.

`chord up` gives its peers their configuration by its own flags: it reads neither variables nor a file.

In Python these are `chord.NodeConfig`, `chord.RingConstants`, `chord.config.Timing` and `chord.config.Limits`, with the
same names; what they refuse is a `chord.errors.ConfigError`. `chord.open_node` takes most of the first table.
"""

OTHERS = {
    "CHORD_CONFIG": "the configuration file of `chord node`; as `--config`",
    "CHORD_DEBUG": "where it is set, a bug is shown with its traceback",
    "CHORD_NODE": "where commands enter the ring, one or more HOST:PORT with spaces between them; as `--node`",
    "CHORD_OUTPUT": "`table` or `tsv`, whether or not there is a terminal",
    "CHORD_TIMEOUT": "seconds after which commands give up; as `--timeout`",
}
"""The variables that are no node's configuration."""

TOLD = ("key", "flag", "variable", "type", "default", "means")
TYPES = {str: "string", int: "integer", float: "number", type(None): ""}


def reference() -> str:
    """Return the page.

    Raises:
        LookupError: the command line reads a variable that is not on it, or the other way round.
    """
    sources = (path.read_text(encoding="utf-8") for path in sorted(Path(str(cli.__file__)).parent.glob("*.py")))
    named = {name for source in sources for name in re.findall(r"\bCHORD_[A-Z]+\b", source)} - set(VARIABLES.values())
    if named != set(OTHERS):
        raise LookupError(f"variables that are here or in chord/cli, not in both: {named ^ set(OTHERS)}")
    own = [key for key in KEYS if key not in RING_KEYS]
    return page(
        HEAD,
        "## The node",
        "At the top of the file.",
        table(TOLD, [_told(NodeConfig, key) for key in own]),
        *_struct("[ring]", RingConstants),
        table(TOLD, [_told(RingConstants, key) for key in RING_KEYS]),
        *_struct("[timing]", Timing),
        "What the file does not name is that of the preset:",
        table(["key", "type", *PRESETS, "means"], [_timed(key) for key in Timing.__struct_fields__]),
        *_struct("[limits]", Limits),
        table(["key", "type", "default", "means"], [_limited(key) for key in Limits.__struct_fields__]),
        "## Other variables",
        table(["variable", "means"], [[f"`{name}`", text] for name, text in OTHERS.items()]),
    )


def _struct(title: str, struct: type[msgspec.Struct]) -> list[str]:
    return [f"## {title}", *map(led, parsed(struct.__doc__).prose)]


def _told(struct: type[msgspec.Struct], key: str) -> list[str]:
    """Return the line of a key that has a flag and a variable."""
    names = {"id": "id_"}
    flag = next(o.opts[0] for o in node_command.params if isinstance(o, click.Option) and o.name == names.get(key, key))
    means = parsed(struct.__doc__).of(key)
    return [f"`{key}`", f"`{flag}`", f"`{VARIABLES[key]}`", _type(struct, key), _default(struct, key), means]


def _timed(key: str) -> list[str]:
    values = [f"{getattr(timing, key):g}" for timing in PRESETS.values()]
    return [f"`{key}`", _type(Timing, key), *values, parsed(Timing.__doc__).of(key)]


def _limited(key: str) -> list[str]:
    return [f"`{key}`", _type(Limits, key), _default(Limits, key), parsed(Limits.__doc__).of(key)]


def _type(struct: type[msgspec.Struct], key: str) -> str:
    """Return what TOML calls the type of a field."""
    found: Any = next(field.type for field in msgspec.structs.fields(struct) if field.name == key)
    if get_origin(found) is tuple:
        return f"list of {TYPES[get_args(found)[0]]}s"
    if get_origin(found) is Literal:
        return ", ".join(f'`"{value}"`' for value in get_args(found))
    return TYPES[found] if found in TYPES else "".join(TYPES[part] for part in get_args(found))


def _default(struct: type[msgspec.Struct], key: str) -> str:
    value = getattr(struct(), key)
    if value is None:
        return "none"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if "bytes" in key and value % size == 0 and value >= size:
            return f"{value} ({value // size} {unit})"
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
