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
import contextlib
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
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = "packages/norch-core/tests/test_samples.py"
REPORTED = 9  # the exit status of a sanitizer that found something
TOGETHER = 4  # steps at a time of those that prove
ALONE = ("build", "memory tests")  # the second fills the GPU's memory
# Under a sanitizer: no made-up drivers, which it would use, no forked processes, which may wait for it forever, and
# nothing that needs the whole memory or much time.
LEFT_OUT = "not without_gpu and not forked and not nccl and not memory and not cache and not streams and not many"
LEFT_OUT += " and not large"
# For races: kernels that share memory among threads. In recorded graphs whose nodes change it fails by itself.
SHARING = "not activations and not random and not optimizers and not cudnn and not program and not cuda_graph"
SHARING += " and not recorded and not captured"
# So it does in cuBLASLt's products of 16-bit floats (nvjet), whose clusters are copied to by the TMA.
SHARING += " and not ((matmul or recurrence) and float16)"
# Processes side by side have a thread each for what tests compare with.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# Of a library's kernels racecheck does not know by what they wait; fused_kernel is what NVRTC compiles.
OWN = ["--kernel-name", "kns=norch", "--kernel-name", "kns=fused_kernel"]
SAID = re.compile(r" FAILED | ERROR |FAILED \(|node down|^========= (?!COMPUTE)(Error|Invalid|Program hit)")


def benchmarks(figures: Path) -> dict[str, list[str]]:
    """Those of benchmarks/cuda_targets.py that there are, by name."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from cuda_targets import COMMANDS

    return {
        name: [sys.executable, f"benchmarks/{script}", *more, "--json", str(figures / f"{name}.json")]
        for name, (script, *more) in COMMANDS.items()
        if (ROOT / "benchmarks" / script).exists()
    }


def steps(site: Path, limit: float) -> dict[str, list[str]]:
    """The commands of what proves, by name, the longest first. Tests are interrupted after `limit` seconds."""
    sanitizer = shutil.which("compute-sanitizer") or "compute-sanitizer"
    check = ["--target-processes", "all", "--error-exitcode", str(REPORTED), "--print-limit", "1000"]
    check += ["--show-backtrace", "device"]  # that of the host holds Python's frames, and what lies in them, for good
    check += ["--max-connections", "64", "--port"]  # of their own, for tools side by side
    install = ["install", "-q", "--no-index", "--no-deps", "--no-build-isolation", "--upgrade", "--target", str(site)]
    core, own, nn = (f"packages/norch-{name}/tests" for name in ("core", "cuda", "nn"))

    def pytest(workers: int, *what: str) -> list[str]:
        """pytest, which is sent Ctrl-C when its time is over, and then says what failed."""
        stop = ["timeout", "--foreground", "--signal=INT", "--kill-after=20", str(limit)]
        run = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:benchmark", "--tb=short"]
        return [*stop, *run, "-n", str(workers), "--dist", "worksteal", *what]

    return {
        "build": [sys.executable, "-m", "pip", *install, "./packages/norch-cuda"],
        "cuda tests": pytest(10, own, "--ignore", f"{own}/test_memory.py"),
        "racecheck": [sanitizer, "--tool", "racecheck", *OWN, *check, "50000"]
        + pytest(5, own, "--cases", "2", "-k", f"{LEFT_OUT} and {SHARING}"),
        "memcheck": [sanitizer, "--tool", "memcheck", *check, "51000"] + pytest(4, own, "--cases", "4", "-k", LEFT_OUT),
        "nn tests": pytest(5, nn, "--default-device", "cuda", "--ignore", f"{nn}/distributed"),
        "samples": pytest(4, f"{core}/test_samples.py", f"{core}/test_linalg.py", "--device", "cuda"),
        "fuzz": [sys.executable, *"tests/fuzz --device cuda --minutes 0.4 --jobs 4 --failures 60".split()]
        + ["--only", "ops", "programs", "models", "threads"],
        "conformance": [sys.executable, "-m", "norch", "conformance", "--device", "cuda"],
        "demo": [sys.executable, "examples/sin_squared.py", "--device", "cuda", "--out", str(site / "sin.png")],
        "digits": [sys.executable, "examples/digits.py", "--device", "cuda", "--out", str(site / "digits.png")],
        "info": [sys.executable, "-m", "norch", "info"],
        "memory tests": pytest(0, f"{own}/test_memory.py"),
    }


def wait(step: subprocess.Popen[Any], name: str, log: Path, limit: float) -> int:
    """The exit status of a step. What fails is printed as it comes; after `limit` seconds it is ended."""
    end = time.perf_counter() + limit
    with log.open(errors="replace") as lines:
        while (code := step.poll()) is None and time.perf_counter() < end:
            time.sleep(0.5)
            for line in lines:
                if SAID.search(line):
                    print(f"{name}: {line.strip()[:200]}", flush=True)
    for how in (signal.SIGINT, signal.SIGKILL):
        if code is None:
            os.killpg(step.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                step.wait(10)
                code = 124
    return 124 if code is None else code


def run(name: str, command: list[str], environment: dict[str, str], limit: float, logs: Path) -> dict[str, object]:
    """Runs a step and returns how it went; all that it printed is a file of `logs`."""
    if limit < 5:
        print(f"== {name}: left out, no time")
        return {"command": " ".join(command), "exit": 125, "seconds": 0, "output": []}
    start = time.perf_counter()
    path = logs / f"{name.replace(' ', '-')}.txt"
    with path.open("w") as log:  # a pipe would be held open by the children of a step that is ended
        try:
            step = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
            code = wait(step, name, path, limit)
        except FileNotFoundError as error:
            code = 127
            log.write(str(error))
    seconds = time.perf_counter() - start
    output = path.read_text(errors="replace")
    lines = [line for line in output.strip().splitlines() if not re.search(r" (PASSED|SKIPPED) ", line)]
    shown = lines[-(40 if code or " benchmarks/" in " ".join(command) else 4) :]
    shown.insert(0, f"== {name}: {'passed' if code == 0 else f'FAILED ({code})'} in {seconds:.1f} s")
    print("\n".join(shown), flush=True)
    return {"command": " ".join(command), "exit": code, "seconds": round(seconds, 1), "output": lines[-12:]}


def main() -> int:
    parser = argparse.ArgumentParser(description="Prove norch-cuda on this machine's GPU.")
    parser.add_argument("--skip", default="", help="steps to leave out, separated by commas")
    parser.add_argument("--only", default="", help="the benchmarks to run, separated by commas (all)")
    parser.add_argument("--commit", help="of the tree, where it is a copy without git")
    parser.add_argument("--limit", type=float, default=200, help="seconds that a step may take (200)")
    parser.add_argument("--seconds", type=float, default=540, help="of all; what has not begun then is left out (540)")
    parser.add_argument("--logs", type=Path, help="a folder for all that the steps print")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "cuda.json")
    options = parser.parse_args()
    skipped, only = (
        {name.strip() for name in names.split(",") if name.strip()} for names in (options.skip, options.only)
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)  # steps of a shell's background job would ignore it
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        site, figures = Path(folder) / "site", Path(folder) / "figures"
        site.mkdir()
        figures.mkdir()
        logs = options.logs or Path(folder) / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        sources = [str(ROOT / "packages" / f"norch-{name}" / "src") for name in ("core", "nn")]
        path = os.pathsep.join([str(site), *sources, os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, "MPLBACKEND": "Agg", "PYTHONDONTWRITEBYTECODE": "1"}

        def prove(step: tuple[str, list[str]], more: dict[str, str] = ONE_THREAD) -> tuple[str, dict[str, object]]:
            left = start + options.seconds - time.perf_counter()
            return step[0], run(*step, environment | more, min(left, options.limit + 30), logs)

        wanted = [step for step in steps(site, options.limit).items() if step[0] not in skipped]
        measured = [
            step for step in benchmarks(figures).items() if step[0] not in skipped and (not only or step[0] in only)
        ]
        found = dict(map(prove, (step for step in wanted if step[0] == "build")))
        if any(step["exit"] for step in found.values()):
            return 1
        with ThreadPoolExecutor(TOGETHER) as together:
            found |= together.map(prove, (step for step in wanted if step[0] not in ALONE))
        found |= map(prove, (step for step in wanted if step[0] == "memory tests"))
        found |= (prove(step, {}) for step in measured)
        report: dict[str, object] = {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        reports = {path.stem: json.loads(path.read_text()) for path in figures.glob("*.json")}
        report |= reports.pop("ops", {})
        from cuda_targets import results, table

        report |= {"figures": reports, "targets": (targets := results(figures))}
    report["driver"] = driver()
    report["commit"] = options.commit or report.get("commit")
    report["steps"], report["seconds"] = found, round(time.perf_counter() - start, 1)
    text = json.dumps(report, indent=2)
    for here, anywhere in ((sys.executable, "python"), (str(ROOT), "."), (tempfile.gettempdir(), "TMP")):
        text = text.replace(here, anywhere)
    options.json.write_text(text + "\n")
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
