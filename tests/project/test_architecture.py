"""The rules of the source: the direction of imports, the sources of effects, the documentation.

Every check also fails on a planted snippet.
"""

from __future__ import annotations

import ast
import functools
import gc
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.real_rings import HANG_S

pytestmark = pytest.mark.xdist_group("architecture")  # one process reads the whole source, once

ROOT = Path(__file__).parents[2]

LAYERS = (
    "errors ids events config",
    "wire",
    "observe",
    "verify",
    "store",
    "net rpc",
    "ring finger stabilize",
    "replication",
    "membership",
    "client",
    "node",
    "views",
    "testing",
    "sim",
    "gallery",
    "lab",
    "web",
    "cli",
)
"""The packages and the modules of the root, from the bottom up. Each imports its own layer and lower ones."""
LAYER = {f"chord.{name}": layer for layer, names in enumerate(LAYERS) for name in names.split()}

REQUIRED_IN_ROOT = ("chord.finger", "chord.stabilize", "chord.rpc")
"""The requirements fix the place of these modules."""

ABOVE_ALL = ("chord", "chord.__main__")
"""The package itself re-exports names of the layers lazily. Every module may import its version."""

WITHOUT_TRIO = (
    *("errors", "ids", "events", "config", "wire", "verify", "finger", "observe"),
    *("store.versions", "store.dedup", "store.merkle", "store.quarantine", "replication.restore"),
    *("ring.pointers", "ring.ownership", "ring.owner_cache", "ring.preference_list", "ring.health"),
    *("net.failure_detector", "client.results", "client.batch", "client.session", "client.operations", "client.api"),
    "client.blocking_api",
)
"""The modules of values and algorithms, which import no event loop."""

WITH_ASYNCIO = ("chord.client.asyncio_client",)
"""The only modules that import asyncio."""

LAZY = ("chord.sim", "chord.gallery", "chord.lab", "chord.web")
"""The packages that the command line loads inside functions only, so that other commands start faster."""

LAB_EXTRA = {"numpy", "matplotlib", "xxhash"}
"""The packages of `chord[lab]`. The lab loads them at import, and other modules only when they draw."""

SEAMS: dict[str, set[str]] = {
    "chord.net.transport": {"socket"},
    "chord.wire.conversion": {"threading"},
    "chord.store.identity": {"threading"},
    "chord.client.sockets": {"socket", "time"},
    "chord.net.names": {"socket"},
    "chord.web.listening": {"socket"},
    "chord.client.pool": {"time", "threading"},
    "chord.client.blocking": {"time", "random", "threading"},
    "chord.client.async_client": {"random", "secrets"},
    "chord.client.asyncio_client": {"random", "socket"},
    "chord.node.world": {"time", "random", "secrets"},
    "chord.testing.*": {"random"},
    "chord.sim.*": {"random"},
    "chord.lab.papers.*": {"random"},
    "chord.gallery.timed": {"random"},
    "chord.sim.pool": {"threading"},
    "chord.lab.experiments.speed": {"time"},
    "chord.web.server": {"socket"},
    "chord.cli.*": {"time", "random", "socket", "secrets", "threading"},
}
"""The only modules that import a source of effects; with `.*`, all modules of a package."""
EFFECTS = {"time", "random", "socket", "secrets", "threading"}

CATCH_ALL = {
    "chord.net.inbound": "the request dispatcher",
    "chord.net.steps": "the driver of an operation: its caller gets the error",
    "chord.cli": "the CLI's main",
    "chord.web.listening": "the server of HTTP, which bytes of a client can end",
    "chord.sim.run": "any error that ends a run is a result",
    "chord.testing.runner": "what fails while no task runs ends the run, not Trio",
}

COMPOSITION_ROOTS = {
    "chord": "the public names",
    "chord.node.services": "the services of a node and of its vnodes",
    "chord.node.maintenance": "the periodic work of a node",
    "chord.cli": "the commands",
}
"""Modules and packages that put parts together: each part may have no other importer."""

ONE_SUBCLASS = {
    "chord.client.blocking_api.ClientApi": "generated from AsyncClientApi, which has two subclasses",
    "chord.cli.numbers.FiniteRange": "a type of its own: the subclass only has another name in messages",
    "chord.lab.schemes.numbered.Mod": "a scheme of its own, and a variant of it",
    "chord.lab.schemes.rendezvous.Rendezvous": "a scheme of its own, and a variant of it",
    "chord.node.Node": "the simulator's node differs in its first step",
    "chord.store.sqlite.SqliteStorage": "the simulator's store has another disk and another thread",
    "chord.store.storage.MemoryStorage": "the simulator's store reports what it does",
    "chord.testing.rings.TestRing": "the simulator's ring adds disks and clocks",
}
"""The only classes with a single subclass. Each is in use without it, or generated."""

SHARED_TESTS = ("support", "models", "mutants")
"""The folders of tests/ that tests of other folders may import."""

LINES_MAX = 600
ENTRY_LINES_MAX = 150
ENTRY_IMPORTS = (
    *("chord.gallery.process", "chord.gallery.laws", "chord.gallery.entry"),
    *("__future__", "collections", "enum", "fractions", "functools", "itertools", "math", "typing", "msgspec"),
)
"""What an entry of the gallery may import: its three modules, and modules that only compute."""
HANDLERS = ("asks", "on_start", "on_message", "on_ask", "on_timer", "rule")
"""The methods of a process in the gallery. Their docstrings are in `chord.gallery.process`."""

FUNCTION_LINES_MAX = 70


class Module(NamedTuple):
    """One source file."""

    name: str
    source: str
    tree: ast.Module


class Import(NamedTuple):
    """One imported module; `is_typing`: only for type checkers; `is_lazy`: inside a function."""

    target: str
    line: int
    is_typing: bool
    is_lazy: bool


@functools.cache
def chord_modules() -> tuple[Module, ...]:
    found = []
    gc.disable()  # the trees stay, and the collector would scan them again and again
    for path in sorted((ROOT / "chord").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        source = path.read_text(encoding="utf-8")
        found.append(Module(name, source, ast.parse(source)))
    gc.enable()
    return tuple(found)


@functools.cache
def nodes_of(module: Module) -> tuple[ast.AST, ...]:
    """Return all nodes of a module's syntax tree; every check reads them, so they are collected once."""
    return tuple(ast.walk(module.tree))


def imports_of(module: Module, names: frozenset[str]) -> tuple[Import, ...]:
    """Return the imports of a module. `from chord import x` is an import of chord.x if that is a module."""
    return tuple(
        Import(full if full in names else base, line, is_typing, is_lazy)
        for full, base, line, is_typing, is_lazy in import_statements(module)
    )


@functools.cache
def import_statements(module: Module) -> tuple[tuple[str, str, int, bool, bool], ...]:
    """Return each imported name in full, the module before its last dot, and the other fields of an `Import`."""

    def walk(node: ast.AST, is_typing: bool, is_lazy: bool) -> Iterator[tuple[str, str, int, bool, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield alias.name, alias.name, child.lineno, is_typing, is_lazy
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                assert child.level == 0, f"{module.name}:{child.lineno} a relative import"
                for alias in child.names:
                    yield f"{base}.{alias.name}", base, child.lineno, is_typing, is_lazy
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                yield from walk(child, True, is_lazy)
            elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):  # an expression has no import
                is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                yield from walk(child, is_typing, is_lazy or is_function)

    return tuple(walk(module.tree, False, False))


def is_in(name: str, package: str) -> bool:
    """Whether a module is a package or a part of it."""
    return name == package or name.startswith(f"{package}.")


def layer_of(name: str) -> int | None:
    """Return the number of a module's layer, or None for a module outside the layers."""
    return LAYER.get(".".join(name.split(".")[:2]))


def seam_of(name: str) -> set[str]:
    """Return the sources of effects that a module may import."""
    packages = [seam for seam in SEAMS if seam.endswith(".*") and is_in(name, seam[:-2])]
    return set().union(SEAMS.get(name, set()), *(SEAMS[seam] for seam in packages))


def is_entry(name: str) -> bool:
    """Whether a module is an entry of the gallery, or its algorithm. No other module imports its classes."""
    return is_in(name, "chord.gallery") and name.count(".") == 3


def algorithm_of(entry: str) -> str:
    """Return the name of the module with the algorithm, if an entry has a second module."""
    return f"{entry}_algorithm"


# -- the checks -------------------------------------------------------------------------------------------


def check_every_module_has_a_layer(modules: Sequence[Module]) -> list[str]:
    return [f"{m.name} is in no layer" for m in modules if m.name not in ABOVE_ALL and layer_of(m.name) is None]


def check_imports_point_down(modules: Sequence[Module]) -> list[str]:
    names = frozenset(m.name for m in modules)
    wrong = []
    for module in modules:
        layer = layer_of(module.name)
        if layer is None:
            continue
        for found in imports_of(module, names):
            target = layer_of(found.target)
            if target is not None and target > layer:
                wrong.append(f"{module.name}:{found.line} imports {found.target}, of a layer above its own")
    return wrong


def check_no_module_serves_one_module_of_another_package(modules: Sequence[Module]) -> list[str]:
    """A module with one importer is a private part of that importer's package, or a part of a composition root."""
    names = frozenset(m.name for m in modules)
    packages = {name.rpartition(".")[0] for name in names}
    importers: dict[str, set[str]] = {name: set() for name in names}
    for module in modules:
        for found in imports_of(module, names):
            if found.target in names:
                importers[found.target].add(module.name)
    wrong = []
    for name, users in importers.items():
        if len(users) != 1 or name in REQUIRED_IN_ROOT:
            continue
        (user,) = users
        home = user if user in packages else user.rpartition(".")[0]
        if home != name.rpartition(".")[0] and not {user, home} & set(COMPOSITION_ROOTS):
            wrong.append(f"{name} has one importer, {user}, in another package; move it there")
    return wrong


def check_commands_load_the_simulator_and_the_lab_late(modules: Sequence[Module]) -> list[str]:
    names = frozenset(m.name for m in modules)
    return [
        f"{module.name}:{found.line} imports {found.target} for every command"
        for module in modules
        if is_in(module.name, "chord.cli")
        for found in imports_of(module, names)
        if not found.is_lazy and not found.is_typing and any(is_in(found.target, package) for package in LAZY)
    ]


def check_no_cycles(modules: Sequence[Module]) -> list[str]:
    names = frozenset(m.name for m in modules)
    graph = {m.name: {i.target for i in imports_of(m, names) if not i.is_typing and i.target in names} for m in modules}
    done: set[str] = set()
    wrong: list[str] = []

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            wrong.append(" -> ".join([*path[path.index(name) :], name]))
        elif name not in done:
            for target in sorted(graph[name] - {name}):
                visit(target, [*path, name])
            done.add(name)

    for name in sorted(names):
        visit(name, [])
    return wrong


def check_values_and_algorithms_do_not_know_trio(modules: Sequence[Module]) -> list[str]:
    names = frozenset(m.name for m in modules)
    return [
        f"{module.name}:{found.line} imports {found.target}"
        for module in modules
        if any(is_in(module.name, f"chord.{name}") for name in WITHOUT_TRIO)
        for found in imports_of(module, names)
        if found.target.split(".")[0] in ("trio", "asyncio")
    ]


def check_asyncio_is_known_to_its_client_only(modules: Sequence[Module]) -> list[str]:
    names = frozenset(m.name for m in modules)
    return [
        f"{module.name}:{found.line} imports {found.target}"
        for module in modules
        if module.name not in WITH_ASYNCIO
        for found in imports_of(module, names)
        if found.target.split(".")[0] == "asyncio"
    ]


def check_callers_without_trio_do_not_pay_for_it(modules: Sequence[Module]) -> list[str]:
    names = frozenset(m.name for m in modules)
    by_name = {m.name: m for m in modules}
    entries = ["chord.client.blocking", "chord.client.asyncio_client", "chord.cli"]
    wrong, seen, todo = [], set(entries), list(entries)
    while todo:
        name = todo.pop()
        for found in imports_of(by_name[name], names):
            if found.is_typing or found.is_lazy:
                continue
            if found.target.split(".")[0] == "trio":
                wrong.append(f"{name}:{found.line} imports trio, and clients without Trio load it")
            elif found.target in names and found.target not in seen:
                seen.add(found.target)
                todo.append(found.target)
    return wrong


def check_effects_enter_through_the_seams(modules: Sequence[Module]) -> list[str]:
    names = frozenset(m.name for m in modules)
    return [
        f"{module.name}:{found.line} imports {found.target}, and is no seam"
        for module in modules
        for found in imports_of(module, names)
        if not found.is_typing
        and found.target in EFFECTS
        and found.target not in seam_of(module.name)
    ]


def check_only_the_lab_needs_its_extra(modules: Sequence[Module]) -> list[str]:
    names = frozenset(m.name for m in modules)
    return [
        f"{module.name}:{found.line} imports {found.target}, which comes with chord[lab]"
        for module in modules
        if not is_in(module.name, "chord.lab")
        for found in imports_of(module, names)
        if not found.is_typing and not found.is_lazy and found.target.split(".")[0] in LAB_EXTRA
    ]


def check_nothing_leans_on_the_testing_kit_or_the_shells(modules: Sequence[Module]) -> list[str]:
    names = frozenset(m.name for m in modules)
    wrong = []
    for module in modules:
        for found in imports_of(module, names):
            top = ".".join(found.target.split(".")[:2])
            if top not in ("chord.testing", "chord.cli") or is_in(module.name, top):
                continue
            if top == "chord.testing" and any(is_in(module.name, package) for package in LAZY):
                continue  # the simulator uses the testing package, and the papers use the simulator
            if (module.name, top) == ("chord.__main__", "chord.cli") or (module.name == "chord" and found.is_typing):
                continue
            wrong.append(f"{module.name}:{found.line} imports {found.target}")
    return wrong


def check_entries_of_the_gallery_stand_alone(modules: Sequence[Module]) -> list[str]:
    """An entry has at most 150 lines and few imports, so that a student reads it beside the text.

    An entry NAME may have its algorithm in a second module, NAME_algorithm. Only the entry imports that module.
    """
    names = frozenset(m.name for m in modules)
    entries = [module for module in modules if is_entry(module.name)]
    long = [f"{m.name} has {n} lines" for m in entries if (n := m.source.count("\n")) > ENTRY_LINES_MAX]
    return long + [
        f"{module.name}:{found.line} imports {found.target}"
        for module in modules
        for found in imports_of(module, names)
        if found.target != algorithm_of(module.name)
        if (is_entry(module.name) and not any(is_in(found.target, name) for name in ENTRY_IMPORTS))
        or is_entry(found.target)
    ]


def check_private_switches_are_in_one_file(modules: Sequence[Module]) -> list[str]:
    names = frozenset(m.name for m in modules)
    return [
        f"{module.name}:{found.line} reaches into {found.target}"
        for module in modules
        for found in imports_of(module, names)
        if "._" in found.target and module.name != "chord.testing.runner"
    ]


def check_only_the_cli_prints(modules: Sequence[Module]) -> list[str]:
    return [
        f"{module.name}:{node.lineno} prints"
        for module in modules
        if not is_in(module.name, "chord.cli")
        for node in nodes_of(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]


def check_public_names_are_documented(modules: Sequence[Module]) -> list[str]:
    wrong = []
    for module in modules:
        if ast.get_docstring(module.tree) is None and module.source.strip():
            wrong.append(f"{module.name} says nothing about itself")
        parts = [m.tree for m in modules if is_entry(m.name) and m.name in (module.name, algorithm_of(module.name))]
        described = set(HANDLERS).union(*map(_described_in, parts)) if is_entry(module.name) else set()
        for node in module.tree.body:
            for owner, definition in _public_definitions(node):
                if ast.get_docstring(definition) is None and definition.name not in described:
                    wrong.append(f"{module.name}:{definition.lineno} {owner}{definition.name} has no docstring")
    return wrong


def _described_in(tree: ast.Module) -> set[str]:
    """Return the functions that have a docstring. A bug of an entry changes a method, and needs no second one."""
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and ast.get_docstring(n) is not None}


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _public_definitions(node: ast.stmt) -> Iterator[tuple[str, Definition]]:
    if not isinstance(node, Definition) or node.name.startswith("_"):
        return
    yield "", node
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            is_overload = any("overload" in ast.unparse(d) for d in getattr(inner, "decorator_list", ()))
            is_setter = any(ast.unparse(d).endswith(".setter") for d in getattr(inner, "decorator_list", ()))
            if isinstance(inner, Definition) and not inner.name.startswith("_") and not is_overload and not is_setter:
                yield f"{node.name}.", inner


def check_files_and_functions_stay_small(modules: Sequence[Module]) -> list[str]:
    wrong = []
    for module in modules:
        lines = module.source.count("\n")
        if lines > LINES_MAX:
            wrong.append(f"{module.name} has {lines} lines, at most {LINES_MAX} may be")
        for node in nodes_of(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    wrong.append(f"{module.name}:{node.lineno} {node.name} has {length} lines")
    return wrong


def check_parts_are_complete_when_constructed(modules: Sequence[Module]) -> list[str]:
    """A part of a node or of the simulator takes its callbacks as arguments; no other object fills them in later."""
    parts = [m for m in modules if (layer := layer_of(m.name)) is not None and layer <= LAYER["chord.sim"]]
    hooks = frozenset().union(*map(_callbacks_of, parts))
    return [
        f"{module.name}:{line} fills in {target} later"
        for module in parts
        for line, name, target in _attributes_set_from_outside(module)
        if name in hooks
    ]


@functools.cache
def _callbacks_of(module: Module) -> frozenset[str]:
    """Return the names of variables and attributes that are annotated as callbacks."""
    return frozenset(
        ast.unparse(node.target).removeprefix("self.")
        for node in nodes_of(module)
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith(("Callable", "Observer"))
    )


@functools.cache
def _attributes_set_from_outside(module: Module) -> tuple[tuple[int, str, str], ...]:
    """Return each assignment to an attribute of another object than `self`: its line, the name, the full target."""
    return tuple(
        (node.lineno, target.attr, ast.unparse(target))
        for node in nodes_of(module)
        if isinstance(node, ast.Assign)
        for targets in node.targets
        for target in (targets.elts if isinstance(targets, ast.Tuple) else [targets])
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self"
    )


def check_base_classes_have_two_subclasses(modules: Sequence[Module]) -> list[str]:
    return [
        f"{base} has the single subclass {subclass}"
        for base, subclass in single_subclasses(modules).items()
        if base not in ONE_SUBCLASS
    ]


def single_subclasses(modules: Sequence[Module]) -> dict[str, str]:
    """Return the classes with one subclass, and that subclass; without protocols, abstract classes and errors."""
    subclasses: dict[str, list[str]] = {}
    classes: set[str] = set()
    for module in modules:
        known = _names_of_classes(module)
        for node in nodes_of(module):
            if not isinstance(node, ast.ClassDef):
                continue
            name = f"{module.name}.{node.name}"
            bases = [ast.unparse(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases]
            if not any(base.endswith(("Protocol", "ABC", "Error", "Exception")) for base in bases):
                classes |= set() if is_entry(module.name) else {name}  # the subclasses in an entry are its bugs
            for base in bases:
                first, dot, rest = base.partition(".")
                subclasses.setdefault(f"{known.get(first, first)}{dot}{rest}", []).append(name)
    return {base: found[0] for base, found in subclasses.items() if base in classes and len(found) == 1}


def check_class_names_have_one_meaning(modules: Sequence[Module]) -> list[str]:
    defined: dict[str, list[str]] = {}
    for module in modules:
        for node in nodes_of(module):
            if isinstance(node, ast.ClassDef) and not is_entry(module.name):
                defined.setdefault(node.name, []).append(module.name)
    return [f"{name} is a class in {' and in '.join(found)}" for name, found in defined.items() if len(found) > 1]


def _names_of_classes(module: Module) -> dict[str, str]:
    """Return the full name of each name that a module imports or defines as a class."""
    found: dict[str, str] = {}
    for node in nodes_of(module):
        if isinstance(node, ast.ClassDef):
            found[node.name] = f"{module.name}.{node.name}"
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return found


def check_only_few_places_catch_everything(modules: Sequence[Module]) -> list[str]:
    """Allow `except Exception` in few places, and `except BaseException` only if it raises again."""
    wrong = []
    for module in modules:
        for node in nodes_of(module):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = "" if node.type is None else ast.unparse(node.type)
            names = {name.strip("() ") for name in caught.split(",")}
            if "Exception" in names and module.name not in CATCH_ALL:
                wrong.append(f"{module.name}:{node.lineno} catches Exception")
            if names & {"", "BaseException"} and not _raises_again(node):
                wrong.append(f"{module.name}:{node.lineno} swallows everything, cancellation too")
    return wrong


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and (last.exc is None or ast.unparse(last.exc) == handler.name)


def check_nothing_is_left_undone(modules: Sequence[Module]) -> list[str]:
    words = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    return [
        f"{module.name}:{number} {word}"
        for module in modules
        for number, line in enumerate(module.source.splitlines(), start=1)
        for word in words
        if word in line
    ]


# -- the tests --------------------------------------------------------------------------------------------

Check = Callable[[Sequence[Module]], list[str]]

LONG_FUNCTION = 'def f() -> None:\n    """Too long."""\n' + "    f()\n" * FUNCTION_LINES_MAX
PLANTED: list[tuple[Check, str, str]] = [
    (check_every_module_has_a_layer, "chord.novelty", ""),
    (check_imports_point_down, "chord.finger", "import chord.node"),
    (check_imports_point_down, "chord.wire.codec", "from chord import node"),
    (check_imports_point_down, "chord.ids", "def f():\n    from chord.ring.pointers import RingState"),
    (check_imports_point_down, "chord.ring.pointers", "if TYPE_CHECKING:\n    from chord.node import Node"),
    (check_imports_point_down, "chord.store.versions", "from chord.replication.records import Records"),
    (check_imports_point_down, "chord.client.results", "from chord.node.status import node_status"),
    (check_imports_point_down, "chord.node", "def f():\n    import chord.lab.schemes.ring"),
    (check_imports_point_down, "chord.testing.rings", "def f():\n    import chord.sim.cluster"),
    (check_no_module_serves_one_module_of_another_package, "chord.lab.novelty", "import chord.cli.backup"),
    (check_commands_load_the_simulator_and_the_lab_late, "chord.cli.sim", "from chord.sim import plan"),
    (check_commands_load_the_simulator_and_the_lab_late, "chord.cli.lab", "import chord.lab.schemes"),
    (check_no_cycles, "chord.ids", "import chord.config"),
    (check_no_cycles, "chord.errors", "def f():\n    from chord.wire.codec import Codec"),
    (check_values_and_algorithms_do_not_know_trio, "chord.ring.ownership", "import trio"),
    (check_values_and_algorithms_do_not_know_trio, "chord.store.versions", "from trio.lowlevel import checkpoint"),
    (check_asyncio_is_known_to_its_client_only, "chord.client.blocking", "import asyncio"),
    (check_asyncio_is_known_to_its_client_only, "chord.node", "def f():\n    from asyncio import run"),
    (check_callers_without_trio_do_not_pay_for_it, "chord.client.results", "import trio"),
    (check_callers_without_trio_do_not_pay_for_it, "chord.client.api", "import trio"),
    (check_callers_without_trio_do_not_pay_for_it, "chord.client.operations", "import trio"),
    (check_effects_enter_through_the_seams, "chord.stabilize", "import random"),
    (check_effects_enter_through_the_seams, "chord.ring.lookup", "from time import monotonic"),
    (check_effects_enter_through_the_seams, "chord.replication.records", "def f():\n    import secrets"),
    (check_effects_enter_through_the_seams, "chord.net.transport", "import threading"),
    (check_effects_enter_through_the_seams, "chord.node.status", "import time"),
    (check_only_the_lab_needs_its_extra, "chord.sim.pool", "from matplotlib.figure import Figure"),
    (check_only_the_lab_needs_its_extra, "chord.cli.lab", "import numpy as np"),
    (check_nothing_leans_on_the_testing_kit_or_the_shells, "chord.node", "from chord.testing import run"),
    (check_nothing_leans_on_the_testing_kit_or_the_shells, "chord.cli.up", "import chord.testing.rings"),
    (check_nothing_leans_on_the_testing_kit_or_the_shells, "chord.client.api", "def f():\n    import chord.cli"),
    (check_nothing_leans_on_the_testing_kit_or_the_shells, "chord", "from chord import testing"),
    (check_entries_of_the_gallery_stand_alone, "chord.gallery.mutex.novelty", "from chord.gallery.world import System"),
    (check_entries_of_the_gallery_stand_alone, "chord.gallery.mutex.novelty", "import random"),
    (check_entries_of_the_gallery_stand_alone, "chord.gallery.mutex.novelty", "x = 1\n" * (ENTRY_LINES_MAX + 1)),
    (check_entries_of_the_gallery_stand_alone, "chord.gallery.mutex.novelty", "import chord.gallery.mutex.token"),
    (
        check_entries_of_the_gallery_stand_alone,
        "chord.gallery.consensus.novelty",
        "from chord.gallery.consensus.raft_algorithm import Raft",
    ),
    (check_entries_of_the_gallery_stand_alone, "chord.gallery.index", "import chord.gallery.mutex.ricart_agrawala"),
    (check_private_switches_are_in_one_file, "chord.testing.network", "from trio._core import _run"),
    (check_only_the_cli_prints, "chord.node", "print('hello')"),
    (check_public_names_are_documented, "chord.finger", "'''A module.'''\ndef start(): pass"),
    (check_public_names_are_documented, "chord.finger", "'''A module.'''\nclass A:\n  '''A.'''\n  def b(self): pass"),
    (check_public_names_are_documented, "chord.finger", "x = 1"),
    (check_files_and_functions_stay_small, "chord.finger", "x = 1\n" * (LINES_MAX + 1)),
    (check_files_and_functions_stay_small, "chord.finger", LONG_FUNCTION),
    (
        check_parts_are_complete_when_constructed,
        "chord.node",
        "class A:\n  def __init__(self):\n    self.save: Callable[[], None] = f\n\ndef g(a):\n  a.save = print",
    ),
    (
        check_parts_are_complete_when_constructed,
        "chord.sim.observer",
        "class A:\n  def __init__(self):\n    self.act: Observer = ignore\n\ndef g(a):\n  a.act = print",
    ),
    (
        check_parts_are_complete_when_constructed,
        "chord.sim.watched",
        "class A:\n  save: Callable[[], None] | None = None\n\ndef g(a):\n  a.save, a.other = print, 1",
    ),
    (check_base_classes_have_two_subclasses, "chord.finger", "class A: pass\nclass B(A): pass"),
    (check_base_classes_have_two_subclasses, "chord.finger", "class A(Generic[T]): pass\nclass B(A[int]): pass"),
    (
        check_base_classes_have_two_subclasses,
        "chord.ring.lookup",
        "from chord.ring.routing import Router\nclass Lookups(Router): pass",
    ),
    (check_class_names_have_one_meaning, "chord.sim.plan", "class Oracle: pass"),
    (check_only_few_places_catch_everything, "chord.rpc", "try: f()\nexcept Exception: pass"),
    (check_only_few_places_catch_everything, "chord.rpc", "try: f()\nexcept (OSError, Exception): pass"),
    (check_only_few_places_catch_everything, "chord.rpc", "try: f()\nexcept: pass"),
    (check_only_few_places_catch_everything, "chord.rpc", "try: f()\nexcept BaseException: g()"),
    (check_nothing_is_left_undone, "chord.rpc", "# TO" + "DO: more"),
]
CHECKS = list(dict.fromkeys(check for check, _, _ in PLANTED))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_source_passes_every_check(check: Check) -> None:
    assert check(chord_modules()) == []


@pytest.mark.parametrize(("check", "name", "source"), PLANTED)
def test_planted_fault_is_caught(check: Check, name: str, source: str) -> None:
    others = [module for module in chord_modules() if module.name != name]
    found = check([*others, Module(name, source, ast.parse(source))])
    assert any(name in line for line in found), found


def test_every_check_is_in_use() -> None:
    defined = {name for name in globals() if name.startswith("check_")}
    assert defined == {check.__name__ for check in CHECKS}


def test_lists_name_only_existing_modules() -> None:
    names = {module.name for module in chord_modules()}
    assert set(LAYER) | {f"chord.{name}" for name in WITHOUT_TRIO} | set(LAZY) <= names
    assert {seam.removesuffix(".*") for seam in SEAMS} | set(CATCH_ALL) <= names
    assert set(ONE_SUBCLASS) <= set(single_subclasses(chord_modules()))


def foreign_helpers(path: str, source: str) -> list[str]:
    """Return the modules that a file under tests/ imports from a test folder which is neither its own nor shared."""
    targets = re.findall(r"^\s*from (tests\.[\w.]+) import\b", source, re.MULTILINE)
    allowed = {*SHARED_TESTS, path.split("/")[1]}
    return [
        f"{path} imports {target}"
        for target in targets
        if target.split(".")[1] not in allowed
    ]


def test_tests_import_no_helper_of_another_folder() -> None:
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py"))
    assert [line for path in files for line in foreign_helpers(path, (ROOT / path).read_text(encoding="utf-8"))] == []
    assert foreign_helpers("tests/net/test_names.py", "from tests.store.test_identity import KEPT")
    assert foreign_helpers("tests/support/cli.py", "from tests.client.test_client import ScannedRing")


def test_root_has_nine_modules_and_the_packages() -> None:
    found = (path for path in (ROOT / "chord").iterdir() if path.is_file() or list(path.rglob("*.py")))
    root = {path.name for path in found}  # without directories that a former checkout left
    packages = {path.parent.name for path in (ROOT / "chord").glob("*/__init__.py")}
    names = ("__init__", "__main__", "errors", "ids", "events", "config", "finger", "stabilize", "rpc")
    modules = {f"{name}.py" for name in names}
    assert root == packages | modules | {"py.typed"}


@pytest.mark.parametrize("entry", ["chord.client.blocking", "chord.client.asyncio_client", "chord.cli"])
def test_importing_a_client_without_trio_loads_no_trio(entry: str) -> None:
    """Import the client in a process. `chord get` must start in about 100 ms."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {entry}; sys.exit('trio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=HANG_S, check=False).returncode == 0
