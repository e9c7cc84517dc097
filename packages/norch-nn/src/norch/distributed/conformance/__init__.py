"""`norch conformance --distributed NAME -n 2`: an engine tried against the contract, case by case, in n processes.

The parent keeps a store, starts the processes and hears from each of them how a case went; one that hangs is named.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import engines
from ..errors import DistributedError
from ..store import TCPStore
from .cases import CASES

STORE = "NORCH_CONFORMANCE_STORE"
"""The variable by which a process finds the parent's store."""

LIMIT = 20.0
"""Seconds that a case may take."""


@dataclass
class Report:
    """What came of each case: "" where it passed, else what went wrong on which rank."""

    engine: str
    distribution: str
    contract: str
    processes: int
    results: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return len(self.results) == len(CASES) and not any(self.results.values())

    def text(self) -> str:
        """A line for each case, and a last one that counts."""
        lines = [
            f"{'ok  ' if not error else 'FAIL'} {name}" + f"\n     {error}" * bool(error)
            for name, error in self.results.items()
        ]
        good = sum(not error for error in self.results.values())
        lines.append(
            f"engine {self.engine} of {self.distribution}, contract {self.contract}, {self.processes} processes: "
            f"{good} of {len(CASES)} cases passed"
        )
        return "\n".join(lines)


def start(name: str, launcher: tuple[str, ...], n: int, store: TCPStore) -> list[subprocess.Popen[bytes]]:
    """The processes: by the engine's own launcher, or with the variables that say which is which."""
    line = [sys.executable, "-m", "norch.distributed.conformance.process", name]
    environment = {**os.environ, STORE: f"127.0.0.1:{store.port}"}
    if launcher:
        beside = Path(sys.executable).with_name(launcher[0])
        command = str(beside) if beside.exists() else shutil.which(launcher[0])
        if command is None:
            raise DistributedError(f"{launcher[0]}, which starts processes for engine {name!r}, is not installed")
        return [subprocess.Popen([command, *launcher[1:], "-n", str(n), *line], env=environment)]
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(n)}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(n)]
    return [subprocess.Popen(line, env=environment | master | rank) for rank in ranks]


def run(name: str, n: int) -> Report:
    """Tries the engine `name` with n processes. Raises DistributedError where it cannot be used."""
    engine = engines.find(name)
    provider = next(p for p in engines.installed() if p.engine is engine)
    report = Report(
        name, f"{provider.distribution} {provider.version}", ".".join(str(part) for part in engine.contract), n
    )
    store = TCPStore("127.0.0.1", 0, is_master=True)
    processes = start(name, engine.launcher, n, store)
    try:
        for case in CASES:
            error = _outcome(case, n, store, processes)
            report.results[case] = error
            if error and "hangs" in error:
                break
        store.set("over", "1")
        end = time.monotonic() + 5
        while any(p.poll() is None for p in processes) and time.monotonic() < end:
            time.sleep(0.02)
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            process.wait()
        store.close()
    return report


def _outcome(case: str, n: int, store: TCPStore, processes: list[subprocess.Popen[bytes]]) -> str:
    """What went wrong with a case, by rank; "" where nothing did."""
    said: dict[int, str] = {}
    end = time.monotonic() + LIMIT + 5
    while len(said) < n:
        for rank in set(range(n)) - set(said):
            value = store.look(f"{case}/{rank}")
            if value is not None:
                said[rank] = value.decode()
        missing = sorted(set(range(n)) - set(said))
        if missing and (time.monotonic() > end or all(p.poll() is not None for p in processes)):
            how = "hangs" if time.monotonic() > end else "hangs or has ended"
            return "; ".join([*(f"rank {r}: {e}" for r, e in sorted(said.items()) if e), f"rank {missing} {how}"])
        time.sleep(0.005)
    return "; ".join(f"rank {rank}: {error}" for rank, error in sorted(said.items()) if error)


def main(options: Any) -> int:
    """0 if every case passed, 1 if one failed, 2 if the engine cannot be used."""
    try:
        report = run(options.distributed, options.n)
    except DistributedError as error:
        print(error, file=sys.stderr)
        return 2
    print(report.text())
    if options.json:
        options.json.write_text(json.dumps(asdict(report), indent=2) + "\n")
    return 0 if report.passed else 1
