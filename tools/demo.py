"""Demo: a ring of real processes on this machine, in nine steps.

Each step shows the command that a user would type. All figures are measured during the run. Ctrl-C stops everything.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import chord
from chord.errors import ChordError

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out"
CHORD = [sys.executable, "-m", "chord"]
PEERS = 8
STEPS = 9
WORDS = 1000
HEAL_S = 20.0


class Demo:
    """The demo: its steps, and the ring and words that they use."""

    def __init__(self) -> None:
        self.step = 0
        self.began = time.monotonic()
        self.port = free_ports(PEERS + 1)
        self.env = {**os.environ, "CHORD_OUTPUT": "table", "CHORD_NODE": self.address(0), "PYTHONPATH": str(ROOT)}
        self.where: dict[str, str] = {}
        self.held = 0

    def address(self, i: int) -> str:
        return f"127.0.0.1:{self.port + i}"

    # -- output ---------------------------------------------------------------------------------------

    def say(self, command: str, why: str) -> None:
        """Begin a step: print its number, its purpose and its command.

        Args:
            command: the command that a user would type.
            why: the purpose.
        """
        self.step += 1
        print(
            f"\n\033[1m[{self.step}/{STEPS}] {why}\033[0m\n$ {command}"
            if sys.stdout.isatty()
            else f"\n[{self.step}/{STEPS}] {why}\n$ {command}",
            flush=True,
        )

    def type(self, *args: str, note: str = "") -> int:
        """Run a `chord` command with its output on the terminal; return its exit code.

        Args:
            args: the arguments of the command.
            note: a line to print before; then the command is printed, too.
        """
        if note:
            print(f"\n{note}\n$ chord {' '.join(args)}", flush=True)
        return subprocess.run([*CHORD, *args], env=self.env, check=False).returncode

    def ask(self, *args: str) -> Any:
        """Run a `chord` command with `--json`, and return its decoded output."""
        done = subprocess.run([*CHORD, *args, "--json"], env=self.env, check=False, capture_output=True, text=True)
        return json.loads(done.stdout)

    # -- the steps --------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run all steps; return the number of words that were lost."""
        base = "" if self.port == 9000 else f" --base-port {self.port}"
        self.say(f"chord up -n {PEERS}{base}", f"{PEERS} peers, one process each")
        with self.up():
            self.say("chord status", "the nodes, and the share of the circle that each of them owns")
            self.type("status")
            self.load()
            word, victim = self.look_up()
            self.join_and_leave()
            self.kill(victim)
            self.look_around(word, victim)
            self.say("chord check", "the invariants, and every pointer exact")
            self.type("check")
            lost = self.read_back(victim)
            print(
                f"\nThat took {time.monotonic() - self.began:.0f} s. Drawings: {OUT.relative_to(ROOT)}/*.svg. "
                f"Try it yourself: chord up -n {PEERS}, and chord --help\n\n{lost} keys lost"
            )
            return lost

    @contextmanager
    def up(self) -> Iterator[None]:
        command = [*CHORD, "up", "-n", str(PEERS), "--base-port", str(self.port), "--json"]
        with started(command, self.env) as (_, ready):
            print(
                f"{len(ready['nodes'])} peers on {self.address(0)}-{self.port + PEERS - 1}, "
                f"ring proven in {ready['seconds']:.1f} s"
            )
            yield

    def load(self) -> None:
        self.where = dict(list(words_of_this_project())[:WORDS])
        words = OUT / "words.tsv"
        words.write_text("".join(f"{word}\t{place}\n" for word, place in self.where.items()))
        self.say("chord load out/words.tsv", f"real data: {len(self.where)} words of this project and their places")
        self.type("load", str(words))

    def look_up(self) -> tuple[str, str]:
        """Show the lookup of a word, and choose the node on its path to be killed.

        Among the possible nodes, the choice is the one with the smallest arc.

        Returns:
            the word, and the name of the node.
        """
        names = {n["address"]: (n["owned"], n["node"]) for n in self.ask("status")["nodes"] if n["keys"]}
        ways = []
        with chord.connect(self.address(0)) as client:
            for word in list(self.where)[:200]:
                trace = client.lookup(word)
                over = trace.hops[-1].contact.address
                if over in names and over not in (self.address(0), trace.owner.address):
                    ways.append((*names[over], word))
        _, victim, word = min(ways)
        self.say(f"chord lookup {word} --trace --from n0", "a lookup, hop by hop")
        self.type("lookup", word, "--trace", "--from", "n0", "--svg", str(OUT / "lookup.svg"))
        print(f"(first lookup {time.monotonic() - self.began:.1f} s after the start)")
        return word, victim

    def join_and_leave(self) -> None:
        listen = self.address(PEERS)
        flags = ["node", "--listen", listen, "--join", self.address(0), "--name", f"n{PEERS}", "--preset", "local"]
        self.say(f"chord {' '.join(flags)} &", "one more peer joins, gets the keys of its arc, and leaves")
        with started([*CHORD, *flags, "--json"], self.env) as (joiner, ready):
            joined = {n["node"]: n for n in self.ask("status")["nodes"]}
            moved = joined[ready["name"]]["counters"]["keys_received"]
            print(
                f"{ready['name']} is a member and got {moved} keys; it owns "
                f"{100 * joined[ready['name']]['owned']:.1f} % of the circle"
            )
            self.type("leave", ready["name"], note="It hands the keys back when it leaves:")
            joiner.wait(20)
        self.await_ideal()

    def kill(self, victim: str) -> None:
        self.held = next(node["keys"] for node in self.ask("status")["nodes"] if node["node"] == victim)
        self.say(f"chord kill {victim} --signal 9", f"{victim} crashes, and its copies are lost")
        self.type("kill", victim, "--signal", "9")
        began = time.monotonic()
        self.type("check", note="At that moment:")
        self.await_ideal()
        print(f"\nthe ring is whole again {time.monotonic() - began:.1f} s after the kill")

    def await_ideal(self) -> None:
        deadline = time.monotonic() + HEAL_S
        while not self.ask("check")["ideal"] and time.monotonic() < deadline:
            time.sleep(0.05)

    def look_around(self, word: str, victim: str) -> None:
        self.say(f"chord lookup {word} --trace --from n0", f"the same lookup, now around {victim}")
        self.type("lookup", word, "--trace", "--from", "n0", "--svg", str(OUT / "detour.svg"))

    def read_back(self, victim: str) -> int:
        """Read every word back; return the number of words that changed or are missing.

        Args:
            victim: the name of the killed node.
        """
        outcomes: Counter[str] = Counter()
        with chord.connect(self.address(0)) as client:
            for word, place in self.where.items():
                try:
                    outcomes["right" if client.get(word).values == (place.encode(),) else "another value"] += 1
                except ChordError as error:
                    outcomes[error.word] += 1
        right = outcomes.pop("right", 0)
        told = f"read everything back: each word was on three peers, {self.held} of them on {victim}"
        self.say("chord get … for every word", told)
        print(f"{right} of {len(self.where)} words read back as they were written")
        for outcome, count in sorted(outcomes.items()):
            print(f"{count} not: {outcome}")
        return len(self.where) - right


def words_of_this_project() -> Iterator[tuple[str, str]]:
    """Yield each word of this project's texts once, with its place as `file:line`."""
    seen: set[str] = set()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "chord").rglob("*.py"))]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for word in re.findall(r"[A-Za-z]{4,}", line):
                if word.lower() not in seen:
                    seen.add(word.lower())
                    yield word.lower(), f"{path.relative_to(ROOT)}:{number}"


@contextmanager
def started(command: list[str], env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """Start a process, and yield it with the JSON line that it prints when ready.

    The end of the block ends the process.
    """
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise SystemExit(process.wait())
            yield process, json.loads(line)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive ports that are free, from 9000 on."""
    for first in range(9000, 20000, 100):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise SystemExit("no free ports")


def main() -> None:
    """Run the demo until it ends or Ctrl-C; exit with code 1 if a word was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    OUT.mkdir(exist_ok=True)
    try:
        sys.exit(1 if Demo().run() else 0)
    except KeyboardInterrupt:
        print("\nstopped")
        sys.exit(130)


if __name__ == "__main__":
    main()
