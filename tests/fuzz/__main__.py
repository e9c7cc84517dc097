"""The fuzzer: `hatch run fuzz --minutes 10 --seed 1`.

Makes random programs, runs each in child processes with norch and with PyTorch, and fails on whatever they disagree
about that docs/differences.md does not name, on crashes, hangs and touched guard pages. Each failure is printed once,
made small, as a script that shows it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from program import HELPERS
from shrink import kind_of, shrunk
from worker import Worker

NAMES = ("ops", "programs", "layers", "models", "threads", "capture", "arguments", "files")

RENEWED = 1000
"""After so many cases a child is replaced."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="cases are numbered from here: a seed is a set of cases")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="kinds of case")
    parser.add_argument("--case", type=int, help="this one case of each kind, and no other")
    parser.add_argument("--device", default="cpu", help="where norch computes; PyTorch stays on the CPU")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=int, default=20, help="stop after so many different ones")
    given = parser.parse_args()
    run = Run(given)
    run.all()
    return run.report()


class Run:
    """One run of the fuzzer."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.until = time.monotonic() + 60 * given.minutes
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.seen: set[tuple[str, str]] = set()
        first = given.seed * 10_000_000
        numbers = [given.case] if given.case is not None else itertools.count(first)
        self.cases = ((kind, n) for n in numbers for kind in given.only)

    def all(self) -> None:
        """Runs cases until time is up, Ctrl-C is pressed or there are failures enough."""
        threads = [threading.Thread(target=self.work, args=(i % 2 == 0,)) for i in range(self.given.jobs)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self.until = 0.0
            for thread in threads:
                thread.join()

    def next_case(self) -> tuple[str, int] | None:
        with self.lock:
            if time.monotonic() > self.until and self.given.case is None:
                return None
            if len(self.seen) >= self.given.failures:
                return None
            return next(self.cases, None)

    def work(self, guarded: bool) -> None:
        """What one thread does: has a child judge cases, with guard pages and without in turn."""
        worker = Worker(self.given.device, guarded)
        for done in itertools.count(1):
            case = self.next_case()
            if case is None:
                break
            lines, failure = worker.random_case(*case)
            with self.lock:
                self.counts[case[0]] += 1
            if failure is not None and lines:  # without lines it is PyTorch that fell while they were written
                self.fail(worker, *case, lines, failure)
            if done % RENEWED == 0:
                worker.stop()
                worker = Worker(self.given.device, not worker.guarded)
        worker.stop()

    def fail(self, worker: Worker, kind: str, number: int, lines: tuple[str, ...], failure: str) -> None:
        """Shows a failure that was not seen before, made small."""
        key = (kind, kind_of(failure) + called(lines))
        with self.lock:
            known = key in self.seen or self.until == 0.0
            self.seen.add(key)
        if known:
            return
        lines, failure = shrunk(lines, lambda candidate: worker.check(kind, candidate), failure)
        text, guard = "\n".join(lines), " (NORCH_CPU_GUARD=1)" if worker.guarded else ""
        with self.lock:
            print(f"--- {kind}, --case {number}{guard}\n{text}\n=> {failure}\n", flush=True)

    def report(self) -> int:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))
        print(f"{sum(self.counts.values())} cases ({counts}), {len(self.seen)} failures")
        if self.seen:
            print(f"\nThe lines run after:\n{HELPERS.format(library='norch')}")
        return 1 if self.seen else 0


def called(lines: tuple[str, ...]) -> str:
    """What a program is about: the function that makes its result, or that its last line calls."""
    found = [re.match(r"z = ([\w.]+)\(", line) for line in lines]
    names = [m[1].split(".")[-1] for m in found if m]
    return names[0] if names else "".join(lines[-1:]).split("(")[0]


if __name__ == "__main__":
    sys.exit(main())
