"""The modules that a command loads. They decide how long `chord get` takes, and loading Trio alone doubles that."""

from __future__ import annotations

import subprocess
import sys

from tests.support.cli import CannedRing
from tests.support.real_rings import HANG_S

MODULES = frozenset({
    "chord", "chord.__main__", "chord.cli", "chord.cli.data", "chord.cli.failures", "chord.cli.inputs",
    "chord.cli.numbers", "chord.cli.output", "chord.cli.plain", "chord.cli.target", "chord.client",
    "chord.client.batch", "chord.client.blocking", "chord.client.blocking_api", "chord.client.operations",
    "chord.client.inspection", "chord.client.pool", "chord.client.quorum_read", "chord.client.results",
    "chord.client.routing", "chord.client.session", "chord.client.sockets",
    "chord.config", "chord.errors", "chord.ids", "chord.ring",
    "chord.ring.owner_cache", "chord.views", "chord.views.common", "chord.views.records", "chord.wire",
    "chord.wire.batch", "chord.wire.cbor", "chord.wire.codec", "chord.wire.conversion", "chord.wire.cuts",
    "chord.wire.messages",
    "chord.wire.messages.base", "chord.wire.messages.batches", "chord.wire.messages.cuts",
    "chord.wire.messages.members", "chord.wire.messages.node", "chord.wire.messages.reaping",
    "chord.wire.messages.records", "chord.wire.messages.replicas", "chord.wire.messages.ring",
    "chord.wire.messages.watch", "chord.wire.session",
})  # fmt: skip
"""The modules of this project that `chord get` needs. A further one makes each command slower."""

DEPENDENCIES = frozenset({"cbor2", "click", "msgspec", "typing_extensions"})
SLOW = frozenset({"asyncio", "base64", "json", "logging", "secrets", "shutil", "ssl", "subprocess", "tempfile"})
"""Modules of the standard library that take a millisecond or more, which `chord get` does not need."""

PROGRAM = """
import sys
before = set(sys.modules)
sys.argv[0] = "chord"
from chord.__main__ import main
try:
    main()
finally:
    print(*sorted(set(sys.modules) - before), file=sys.stderr)
"""


def test_get_loads_only_the_modules_it_needs(canned: CannedRing) -> None:
    canned.values[b"user:42"] = (b"Ada",)
    command = [sys.executable, "-c", PROGRAM, "get", "user:42", "--node", canned.entry]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=True)
    assert ended.stdout == "Ada"
    loaded = ended.stderr.split()
    assert {name for name in loaded if name.split(".")[0] == "chord"} <= MODULES
    others = {name.split(".")[0] for name in loaded} - sys.stdlib_module_names - {"chord"}
    assert others <= DEPENDENCIES
    assert not SLOW.intersection(loaded)
