"""Proves norch-cuda on this machine's GPU: builds the wheel, runs the tests, the demos and the sanitizers, measures.

    python packages/norch-cuda/prove.py [--skip build,samples,...] [--only capture,linalg,...] [--logs FOLDER]
        [--json benchmarks/results/h200.json]

Last it prints the table of benchmarks/cuda_targets.py: what is asked, what was reached, PyTorch's figure. What proves
runs side by side, what measures alone and after it.

It needs a GPU, nvcc (on PATH or from NVIDIA's wheel), and in this environment: scikit-build-core, nanobind and
nanobind-backend, cmake, ninja, pytest, pytest-xdist, numpy, ml_dtypes, pluggy, cuda-pathfinder; for the comparison
PyTorch, for the sanitizers compute-sanitizer; cuDNN, cuSOLVER and NVRTC where they are to take part. Nothing is
downloaded. What each step printed last goes into the JSON file, with versions, commit and figures.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = "packages/norch-core/tests/test_samples.py"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark", "--tb=short"]
WORKERS = ["-n", "8"]
REPORTED = 9  # the exit status of a sanitizer that found something
TOGETHER = 3  # steps at a time of those that prove
ALONE = ("build", "cuda tests")  # the second fills the GPU's memory
# Under a sanitizer: what needs the whole memory or much time, and made-up drivers, which the sanitizer would use.
LEFT_OUT = "not without_gpu and not memory and not cache and not streams and not many and not large and not long"
# For races: kernels that share memory among threads.
SHARING = "not activations and not random and not optimizers"


def benchmarks(figures: Path) -> dict[str, list[str]]:
    """Those of benchmarks/cuda_targets.py that there are, by name."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from cuda_targets import COMMANDS

    return {
        name: [sys.executable, f"benchmarks/{script}", *more, "--json", str(figures / f"{name}.json")]
        for name, (script, *more) in COMMANDS.items()
        if (ROOT / "benchmarks" / script).exists()
    }


def steps(site: Path) -> dict[str, list[str]]:
    """The commands of what proves, by name, those that take longest first."""
    sanitizer = shutil.which("compute-sanitizer") or "compute-sanitizer"
    check = ["--target-processes", "all", "--error-exitcode", str(REPORTED), "--print-limit", "10000"]
    kernels = [*PYTEST, *WORKERS, "packages/norch-cuda/tests", "-k"]
    install = ["install", "-q", "--no-index", "--no-deps", "--no-build-isolation", "--upgrade", "--target", str(site)]
    core = "packages/norch-core/tests"
    return {
        "build": [sys.executable, "-m", "pip", *install, "./packages/norch-cuda"],
        "memcheck": [sanitizer, "--tool", "memcheck", *check, *kernels, LEFT_OUT],
        "racecheck": [sanitizer, "--tool", "racecheck", *check, *kernels, f"{LEFT_OUT} and {SHARING}"],
        "nn tests": [*PYTEST, *WORKERS, "packages/norch-nn/tests", "--default-device", "cuda"],
        "fuzz": [sys.executable, "tests/fuzz", "--device", "cuda", "--minutes", "1", "--jobs", "8", "--failures", "60"]
        + ["--only", "ops", "programs", "models", "threads"],
        "samples": [*PYTEST, *WORKERS, SAMPLES, f"{core}/test_linalg.py", "--device", "cuda"],
        "conformance": [sys.executable, "-m", "norch", "conformance", "--device", "cuda"],
        "demo": [sys.executable, "examples/sin_squared.py", "--device", "cuda", "--out", str(site / "sin.png")],
        "digits": [sys.executable, "examples/digits.py", "--device", "cuda", "--out", str(site / "digits.png")],
        "info": [sys.executable, "-m", "norch", "info"],
        "cuda tests": [*PYTEST, "-n", "12", "packages/norch-cuda/tests"],
    }


def run(
    name: str, command: list[str], environment: dict[str, str], limit: float, logs: Path | None
) -> dict[str, object]:
    """Runs a step and returns how it went; all that it printed goes to a file of `logs`."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as log:  # a pipe would be held open by the children of a step that is ended
        try:
            step = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
            code = step.wait(limit)
        except FileNotFoundError as error:
            code = 127
            log.write(str(error))
        except subprocess.TimeoutExpired:
            os.killpg(step.pid, signal.SIGKILL)
            code = 124
        log.seek(0)
        output = log.read()
    reported = sorted(set(re.findall(r" access at (\S+?)\+0x", output)))
    if code == REPORTED and "racecheck" in command and all(kernel.startswith("nvjet_") for kernel in reported):
        code = 0  # the matrix products of cuBLASLt, which wait by means that racecheck does not know
    if logs is not None:
        (logs / f"{name.replace(' ', '-')}.txt").write_text(output)
    lines = output.strip().splitlines()
    seconds = time.perf_counter() - start
    shown = lines[-(40 if code or " benchmarks/" in " ".join(command) else 4) :]
    shown.insert(0, f"== {name}: {'passed' if code == 0 else f'FAILED ({code})'} in {seconds:.1f} s")
    print("\n".join(shown), flush=True)
    return {"command": " ".join(command), "exit": code, "seconds": round(seconds, 1), "output": lines[-12:]} | (
        {"reported": reported} if reported else {}
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Prove norch-cuda on this machine's GPU.")
    parser.add_argument("--skip", default="", help="steps to leave out, separated by commas")
    parser.add_argument("--only", default="", help="the benchmarks to run, separated by commas (all)")
    parser.add_argument("--commit", help="of the tree, where it is a copy without git")
    parser.add_argument("--limit", type=float, default=900, help="seconds that a step may take (900)")
    parser.add_argument("--logs", type=Path, help="a folder for all that the steps print")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "cuda.json")
    options = parser.parse_args()
    if options.logs is not None:
        options.logs.mkdir(parents=True, exist_ok=True)
    skipped, only = (
        {name.strip() for name in names.split(",") if name.strip()} for names in (options.skip, options.only)
    )
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        site, figures = Path(folder) / "site", Path(folder) / "figures"
        site.mkdir()
        figures.mkdir()
        sources = [str(ROOT / "packages" / f"norch-{name}" / "src") for name in ("core", "nn")]
        path = os.pathsep.join([str(site), *sources, os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, "MPLBACKEND": "Agg", "PYTHONDONTWRITEBYTECODE": "1"}

        def prove(step: tuple[str, list[str]]) -> tuple[str, dict[str, object]]:
            return step[0], run(*step, environment, options.limit, options.logs)

        wanted = [step for step in steps(site).items() if step[0] not in skipped]
        measured = [
            step for step in benchmarks(figures).items() if step[0] not in skipped and (not only or step[0] in only)
        ]
        found = dict(map(prove, (step for step in wanted if step[0] == "build")))
        with ThreadPoolExecutor(TOGETHER) as together:
            found |= together.map(prove, (step for step in wanted if step[0] not in ALONE))
        found |= map(prove, [step for step in wanted if step[0] == "cuda tests"] + measured)
        report: dict[str, object] = {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        reports = {path.stem: json.loads(path.read_text()) for path in figures.glob("*.json")}
        report |= reports.pop("ops", {})
        from cuda_targets import results, table

        report |= {"figures": reports, "targets": (targets := results(figures))}
    report["driver"] = driver()
    report["commit"] = options.commit or report.get("commit")
    report["steps"], report["seconds"] = found, round(time.perf_counter() - start, 1)
    options.json.write_text(json.dumps(report, indent=2) + "\n")
    failed = [name for name, step in found.items() if step["exit"]]
    print(table(targets))
    print(("failed: " + ", ".join(failed) if failed else "all passed") + f", in {report['seconds']} s")
    return len(failed)


def driver() -> str:
    """What nvidia-smi says of GPU and driver."""
    ask = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(ask, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
