"""norch beside PyTorch, JAX, MLX, tinygrad and hand-written NumPy: python benchmarks/choose.py

Each is installed by pip in an environment of its own, measured there, and written to benchmarks/results/choose.json,
from which docs/update.py writes the tables of docs/choose.md. What cannot be installed or run is in them with the
reason. Needs Python with venv, and a network; PyTorch compiles with g++, tinygrad with clang, where they are on PATH.

    python benchmarks/choose.py --wheels dist                  norch as `hatch run release:build core nn cpu` makes it
    python benchmarks/choose.py --torch "torch --index-url https://download.pytorch.org/whl/cpu"
    python benchmarks/choose.py --only norch,numpy --quick     one round, small models: to try the script

Environments are made anew in --folder, and are deleted unless --keep is given, which also takes those that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timing import Others

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "choose.json"
CHILD = ROOT / "benchmarks" / "choosing" / "child.py"

SPECS = {
    "norch": "norch-core norch-cpu norch-nn",
    "torch": "torch",
    "jax": "jax",
    "mlx": "mlx" if sys.platform == "darwin" else "mlx[cpu]",
    "tinygrad": "tinygrad",
    "numpy": "numpy",
}
FIRST_SUM = {
    "norch": "import norch; print((norch.ones(4, 4) + 1).sum().item())",
    "torch": "import torch; print((torch.ones(4, 4) + 1).sum().item())",
    "jax": "import jax.numpy as jnp; print((jnp.ones((4, 4)) + 1).sum().item())",
    "mlx": "import mlx.core as mx; print((mx.ones((4, 4)) + 1).sum().item())",
    "tinygrad": "from tinygrad import Tensor; print((Tensor.ones(4, 4).contiguous() + 1).sum().item())",
    "numpy": "import numpy as np; print((np.ones((4, 4)) + 1).sum().item())",
}
"""A script that imports and adds: what one waits for before anything else."""
IMPORTS = {"jax": "jax.numpy", "mlx": "mlx.core"}


class Failed(Exception):
    """What a command said last."""


def run(command: list[str], **more: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NORCH_"))}
    done = subprocess.run(command, env=environment | more, capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise Failed(lines[-1][:300] if lines else f"{command[0]} ended with {done.returncode}")
    return done.stdout


class Environment:
    """A virtual environment with one framework."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder / name
        self.python = str(self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))

    def make(self, spec: str, wheels: str | None) -> dict[str, Any]:
        """Installs it: the bytes and the packages that it brings, and how long pip took with downloads."""
        shutil.rmtree(self.folder, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(self.folder)])
        before, packages = self.size(), set(self.packages())
        links = ["--find-links", str(Path(wheels).resolve())] if wheels else []
        pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
        start = time.perf_counter()
        run([*pip, *links, *shlex.split(spec)])
        seconds = time.perf_counter() - start
        brought = sorted(set(self.packages()) - packages)
        found = {"spec": spec, "bytes": self.size() - before, "packages": brought, "seconds": seconds}
        if not any(p.startswith("numpy==") for p in brought):  # the check and the data need it; it is not counted
            run([*pip, "numpy"])
        return found

    def size(self) -> int:
        """Of all files, without compiled Python."""
        files = (p for p in self.folder.rglob("*") if "__pycache__" not in p.parts)
        return sum(p.lstat().st_size for p in files if p.is_file() and not p.is_symlink())

    def packages(self) -> list[str]:
        return run([self.python, "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check"]).split()

    def run(self, *arguments: str) -> str:
        """Of its Python, which keeps compiled code here, if at all."""
        caches = {"TORCHINDUCTOR_CACHE_DIR": self.folder / "inductor", "CACHEDB": self.folder / "tinygrad.db"}
        return run([self.python, *arguments], JAX_PLATFORMS="cpu", **{k: str(path) for k, path in caches.items()})

    def start(self) -> dict[str, float]:
        """Seconds for the import, and for a script that adds two matrices, start and end of Python included."""
        module = IMPORTS.get(self.name, self.name)
        code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
        imports = [float(self.run("-c", code)) for _ in range(6)]
        sums = []
        for _ in range(6):
            begin = time.perf_counter()
            if float(self.run("-c", FIRST_SUM[self.name])) != 32:
                raise Failed("(ones(4, 4) + 1).sum() is not 32")
            sums.append(time.perf_counter() - begin)
        return {"import": min(imports), "first_sum": min(sums)}

    def measure(self, out: Path, quick: bool) -> dict[str, Any]:
        self.run(str(CHILD), self.name, str(out), *(["--quick"] if quick else []))
        return json.loads(out.read_text())  # type: ignore[no-any-return]


def merged(rounds: list[Any]) -> Any:
    """The rounds' figures as one: of times the shortest; a reason where one gave a reason."""
    first = rounds[0]
    if isinstance(first, dict) and not any("why" in r for r in rounds):
        return {key: merged([r[key] for r in rounds]) for key in first}
    if isinstance(first, float) and all(isinstance(r, float) for r in rounds):
        return min(rounds)
    return next((r for r in rounds if isinstance(r, dict) and "why" in r), first)


def compilers() -> dict[str, str]:
    """What PyTorch and tinygrad would compile with."""
    found = {name: shutil.which(name) for name in ("g++", "clang")}
    return {name: run([path, "--version"]).splitlines()[0] for name, path in found.items() if path}


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description="norch beside other frameworks, each in its own environment.")
    parser.add_argument("--only", default=",".join(SPECS), help="some of %(default)s")
    for name, spec in SPECS.items():
        parser.add_argument(f"--{name}", default=spec, metavar="SPEC", help=f"what pip installs (default: {spec})")
    parser.add_argument("--wheels", metavar="FOLDER", help="where norch's wheels are, if not in pip's index")
    parser.add_argument("--folder", type=Path, help="where the environments go (default: a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="take the environments that are there, and leave them")
    parser.add_argument("--rounds", type=int, default=3, help="the frameworks take turns (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one round of short timings, without the larger models")
    parser.add_argument("--out", type=Path, default=RESULTS, help="default: %(default)s")
    args = parser.parse_args()
    unknown = set(args.only.split(",")) - set(SPECS)
    if unknown:
        parser.error(f"--only: no such framework: {', '.join(sorted(unknown))}")

    others = Others()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="choose-"))
    folder.mkdir(parents=True, exist_ok=True)
    environments = [Environment(name, folder) for name in SPECS if name in args.only.split(",")]
    rows: dict[str, dict[str, Any]] = {}
    for environment in environments:
        name = environment.name
        kept = folder / f"{name}.json"
        print(f"{name}: installing ...", file=sys.stderr, flush=True)
        try:
            if args.keep and kept.exists():
                rows[name] = json.loads(kept.read_text())
            else:
                rows[name] = {
                    "install": environment.make(getattr(args, name), args.wheels if name == "norch" else None)
                }
                kept.write_text(json.dumps(rows[name]))
        except (Failed, OSError, subprocess.SubprocessError) as error:
            rows[name] = {"why": str(error)}
    rounds: dict[str, list[Any]] = {}
    for turn in range(1 if args.quick else args.rounds):
        for environment in environments[turn:] + environments[:turn]:
            name = environment.name
            if "why" in rows[name]:
                continue
            print(f"{name}: round {turn + 1} ...", file=sys.stderr, flush=True)
            try:
                found = environment.measure(folder / f"{name}-{turn}.json", args.quick)
                rounds.setdefault(name, []).append({"start": environment.start(), **found})
            except (Failed, OSError, subprocess.SubprocessError) as error:
                rows[name]["why"] = str(error)
    for name, found in rounds.items():
        rows[name] |= merged(found)
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "compilers": compilers(),
        "others": others.share(),
        "frameworks": rows,
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    if not args.folder and not args.keep:
        shutil.rmtree(folder, ignore_errors=True)
    for name, row in rows.items():
        print(f"{name}: {row.get('why', 'measured')}", file=sys.stderr)


if __name__ == "__main__":
    main()
