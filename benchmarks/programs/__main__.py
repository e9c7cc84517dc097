"""Public PyTorch programs, run by norch with only the imports changed, beside PyTorch: python benchmarks/programs

What runs is listed in programs.toml. The repositories are fetched from GitHub at the commits named there, or looked for
in --sources as owner+name; nothing of them is kept. Packages are those that are installed: pip install timm .... Each
program runs in a process of its own for each library, both drawing the same random numbers; data that would be
downloaded are noise. A script runs up to some backward passes, whose losses are compared; of a model its results and
gradients are. Of a model passes are timed in turn, the least processor time of each library counts; of a script all
from the imports on, the lesser of two runs. --table writes the table of docs/from-pytorch.md, by repository;
benchmarks/results/programs.json has each program.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "programs.json"
PAGE = ROOT / "docs" / "from-pytorch.md"
BEGIN, END = "<!-- programs -->\n", "<!-- /programs -->\n"
AGREES = 1e-3
"""The largest relative difference of a program that counts as run."""
PASSES = 7
"""Of a model's that are timed, one library's beside the other's; the least counts."""
DRAWS = 3
"""How often the weights of a model may be drawn: where a number is 0 but for rounding before a ReLU, or two are equal
before a maximum, either library's gradients may be those of the other side."""


class Program(NamedTuple):
    repository: str
    name: str
    folder: str
    """Where it runs, within the repository."""
    what: dict[str, Any]


def programs() -> list[Program]:
    """Those of programs.toml."""
    found = []
    for group in LISTED["models"]:
        source = group.get("repository") or f"{group['package']} {LISTED['packages'][group['package']]}"
        for line in group["programs"]:
            module, expression = ("", line) if "package" in group else line.split(": ", 1)
            label = line
            what = {"module": module, "expression": expression, "before": group.get("before", "")}
            expression, _, inputs = expression.partition(" <- ")
            what |= {"expression": expression, "inputs": inputs or group["inputs"]}
            found.append(Program(source, label.partition(" <- ")[0], group.get("folder", ""), what))
    for group in LISTED["scripts"]:
        for line in group["programs"]:
            words = line.split()
            folder, _, file = words[0].rpartition("/")
            options = [*words[1:], *group.get("options", [])]
            what = {"script": [file.replace("%", " "), *options], "before": group.get("before", "")}
            what |= {"losses": group["losses"]} if "losses" in group else {}
            found.append(Program(group["repository"], line.replace("%", " "), folder.replace("%", " "), what))
    return found


LISTED = tomllib.loads((HERE / "programs.toml").read_text())


def fetched(repository: str, sources: Path | None, cache: Path) -> Path:
    if repository.partition(" ")[0] in LISTED["packages"]:
        (cache / "nothing").mkdir(parents=True, exist_ok=True)
        return cache / "nothing"
    if sources is not None:
        return sources / repository.replace("/", "+")
    folder = cache / repository.replace("/", "+")
    if not folder.exists():
        url, commit = f"https://github.com/{repository}", LISTED["repositories"][repository]
        for command in (["init", "-q", folder], ["-C", folder, "fetch", "-q", "--depth", "1", url, commit],
                        ["-C", folder, "checkout", "-q", "FETCH_HEAD"]):  # fmt: skip
            subprocess.run(["git", *command], check=True)
    return folder


class Run:
    """A program in a process of its own, in a copy of its folder. `result` is what child.py says of it."""

    def __init__(self, library: str, program: Program, source: Path, limit: float) -> None:
        self.folder = tempfile.TemporaryDirectory()
        work = Path(self.folder.name) / "a" / "b" / "work"  # scripts make folders beside it
        shutil.copytree(source / program.folder, work, ignore=shutil.ignore_patterns(".git"))
        to, errors = Path(self.folder.name) / "result.json", Path(self.folder.name) / "errors"
        path = [str(HERE), str(work), str(source), os.environ.get("PYTHONPATH", "")]
        variables = os.environ | {"PYTHONPATH": os.pathsep.join(path), "MPLBACKEND": "Agg", "PYTHONHASHSEED": "0"}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)  # else norch would be compiled again each time
        command = [sys.executable, "-W", "ignore", str(HERE / "child.py"), library, str(to), json.dumps(program.what)]
        with errors.open("w") as stderr:
            streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": stderr}
            self.process = subprocess.Popen(command, cwd=work, env=variables, text=True, **streams)
        timer = threading.Timer(limit, self.process.kill)
        timer.start()
        self._answer()
        late = not timer.is_alive()
        timer.cancel()
        self.result: dict[str, Any] = json.loads(to.read_text()) if to.exists() else {
            "error": f"takes more than {limit:.0f} s" if late else f"ended: {errors.read_text()[-300:]}"
        }  # fmt: skip

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def passed(self) -> float:
        """Seconds of processor time of a model's pass forward and back."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        if not (answer := self._answer()):
            raise RuntimeError(f"{self.process.args} ended while it was timed")
        return float(answer)


def seconds_of(program: Program, source: Path, limit: float, runs: dict[str, Run]) -> dict[str, float]:
    """What each library takes at least: a pass of a model, or a script from the start of its imports."""
    if "script" in program.what:
        taken = {library: run.result["seconds"] for library, run in runs.items()}
        for library in runs:
            with Run(library, program, source, limit) as again:
                taken[library] = min(taken[library], again.result.get("seconds", taken[library]))
        return taken
    taken = {library: float("inf") for library in runs}
    for turn in range(PASSES):
        for library, run in list(runs.items())[:: 1 if turn % 2 else -1]:
            seconds = run.passed()
            if turn:  # the first is warmer by the one before it
                taken[library] = min(taken[library], seconds)
    return taken


def difference(ours: list[list[float]], theirs: list[list[float]]) -> float:
    """The largest, relative to the largest number of the same result, or of all losses."""
    if [len(a) for a in ours] != [len(b) for b in theirs]:
        return float("inf")
    groups = list(zip(ours, theirs))
    if all(len(b) == 1 for b in theirs):  # losses
        groups = [([a for (a,) in ours], [b for (b,) in theirs])]
    worst = 0.0
    largest = max((np.abs(b).max(initial=0) for _, b in groups), default=0)
    for a, b in groups:
        size = max(np.abs(b).max(initial=0), 1e-3 * largest)  # what is 0 but for rounding has no digits of its own
        gap = np.abs(np.subtract(a, b)).max(initial=0)
        worst = max(worst, float(gap / size) if size else float(gap))
    return worst if worst == worst else float("inf")


def compare(program: Program, source: Path, limit: float) -> dict[str, Any]:
    row: dict[str, Any] = {"repository": program.repository, "program": program.name}
    for seed in range(DRAWS if "module" in program.what else 1):
        drawn = program._replace(what=program.what | ({"seed": seed} if "module" in program.what else {}))
        with Run("torch", drawn, source, limit) as theirs:
            if "error" in theirs.result:
                return row | {"left_out": theirs.result["error"], "trace": theirs.result.get("trace", "")}
            with Run("norch", drawn, source, limit) as ours:
                if "error" in ours.result:
                    return row | {"error": ours.result["error"], "trace": ours.result.get("trace", "")}
                values, expected = ours.result["values"], theirs.result["values"]
                seconds = seconds_of(drawn, source, limit, {"torch": theirs, "norch": ours})
                found = {
                    "difference": difference(values, expected),
                    "compared": sum(map(len, expected)),
                    "time": seconds["norch"] / seconds["torch"],
                    "seconds": seconds["norch"],
                    "memory": ours.result["memory"] / theirs.result["memory"],
                }
        if found["difference"] <= AGREES:
            break
    return row | found


def agrees(row: dict[str, Any]) -> bool:
    return bool(row.get("difference", np.inf) <= AGREES)


def is_script(row: dict[str, Any]) -> bool:
    return any(word.endswith(".py") for word in row["program"].split())


def table(rows: list[dict[str, Any]]) -> str:
    ran = [row for row in rows if agrees(row)]
    kinds = {
        "models' passes": [row for row in ran if not is_script(row)],
        "scripts, the libraries' imports included": [row for row in ran if is_script(row)],
    }
    times = [f"{median(r['time'] for r in kind):.2f} for {name}" for name, kind in kinds.items() if kind]
    lines = [
        f"{len(ran)} of {len(rows)} programs run with only the imports changed and agree with PyTorch. Of PyTorch's, "
        f"their median time is {' and '.join(times)}, their median peak memory {median(r['memory'] for r in ran):.2f}.",
        "",
        "| | | agree | largest difference | time | memory |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for repository, script in dict.fromkeys((row["repository"], is_script(row)) for row in rows):
        group = [row for row in rows if (row["repository"], is_script(row)) == (repository, script)]
        good = [row for row in group if agrees(row)]
        line = f"| {repository} | {'scripts' if script else 'models'} | {len(good)} of {len(group)} |"
        if good:
            differences, times, memory = ([row[key] for row in good] for key in ("difference", "time", "memory"))
            line += f" {max(differences):.0e} | {_range(times)} | {_range(memory)} |"
        lines.append(line if good else f"{line} | | |")
    for row in rows:
        if not agrees(row):
            why = row["error"].splitlines()[0][:160] if "error" in row else f"differs by {row['difference']:.0e}"
            lines.append(f"\n`{row['program']}` of {row['repository']}: {why}")
    return "\n".join(lines) + "\n"


def _range(values: list[float]) -> str:
    """The median, and behind it the least and the most where there are several."""
    ends = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{median(values):.2f}{ends}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Run public PyTorch programs by norch, beside PyTorch.")
    parser.add_argument("--sources", type=Path, help="a folder with the repositories, as owner+name")
    parser.add_argument("--only", default="", help="programs whose repository or name contains this")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a program may take")
    parser.add_argument("--table", action="store_true", help=f"keep the results, and write the table of {PAGE.name}")
    options = parser.parse_args()
    cache = Path(tempfile.gettempdir()) / "norch-programs"
    rows = []
    for program in programs():
        if options.only not in f"{program.repository} {program.name}":
            continue
        row = compare(program, fetched(program.repository, options.sources, cache), options.limit)
        said = row.get("left_out") or row.get("error") or f"{row['difference']:.1e}, time {row['time']:.2f}"
        state = next((word for word in ("left_out", "error") if word in row), "ok" if agrees(row) else "differs")
        print(f"{state:8} {program.repository} {program.name}: {said}", flush=True)
        if options.only and "trace" in row:
            print(row["trace"])
        if "left_out" not in row:
            rows.append(row)
    print(table(rows).splitlines()[0] if any("difference" in r for r in rows) else "nothing ran")
    if options.table:
        kept = [{key: value for key, value in row.items() if key != "trace"} for row in rows]
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        meta = {"date": date.today().isoformat(), "commit": commit.stdout.strip(), "torch": version("torch")}
        RESULTS.write_text(json.dumps(meta | {"programs": kept}, indent=1) + "\n")
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(before + BEGIN + table(rows) + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
