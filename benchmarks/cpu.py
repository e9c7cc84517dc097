"""How fast norch is on the CPU: its time over PyTorch's for single ops and training steps, and how much of what the
machine can do at most that is.

All libraries are timed in turn in one run, in rounds of rotated order, each on as many threads; a figure is the median
of the rounds, a ratio that of the medians. Results are compared before anything is timed, and a row whose results
differ is refused. Every row has a limit to its ratio; without PyTorch there are times only. A row during which other
processes were busy is marked: they hurt the library most whose threads wait for each other.

    python benchmarks/cpu.py [--only PATTERN] [--quick] [--retries 3] [--check] [--json out.json] [--png out.png]
"""

from __future__ import annotations

import argparse
import datetime
import gc
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpu_limits import Machine
    from cpu_rows import Row

# For what decides on its threads when it is imported.
VARIABLES = (
    "NORCH_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How fast norch is on the CPU, beside PyTorch and NumPy.")
    parser.add_argument("--only", metavar="PATTERN", help="the rows whose name or group this regular expression finds")
    parser.add_argument("--quick", action="store_true", help="few, short rounds")
    parser.add_argument("--rounds", type=int, help="25 for the smallest ops and 9 for the rest by default")
    parser.add_argument("--retries", type=int, default=0, help="of a row while other processes are busy (0)")
    parser.add_argument("--threads", type=int, default=2, help="for each library (2)")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a limit is not held")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    parser.add_argument("--png", type=Path, help="also draw the ratios there")
    return parser.parse_args()


DISTURBED = 0.1  # of the processors' time taken by other processes: a row's figures tell little

# --- Measuring --------------------------------------------------------------------------------------------------------


def measure(row: Row, options: argparse.Namespace) -> dict[str, list[float]] | str:
    """Seconds a call by library and round, or why the row is refused."""
    from cpu_rows import set_precision
    from timing import count_for, interleaved

    try:
        set_precision(*row.precision)
        calls = row.prepare()
        wrong = row.check(calls)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if wrong:
        return wrong
    settle, batch, budget = (0.005, 0.002, 3.0) if options.quick else (0.06, 0.008, 15.0)
    if row.calls:
        rounds = options.rounds or (5 if options.quick else 25)
        times = interleaved({**calls, "": lambda: None}, rounds, row.calls, settle)
        empty = statistics.median(times.pop(""))
        return {library: [t - empty for t in taken] for library, taken in times.items()}
    counted = {library: count_for(call, batch) for library, call in calls.items()}
    # Kernels that are hundreds of times too slow need not be measured for minutes.
    most = int(budget / sum(2 * taken for _, taken in counted.values()))
    rounds = max(3, min(options.rounds or (5 if options.quick else 9), most))
    return interleaved(calls, rounds, {library: count for library, (count, _) in counted.items()}, settle)


def figures(row: Row, times: Mapping[str, list[float]] | str, machine: Machine) -> dict[str, Any]:
    """What is known of a row, as it goes into the JSON file."""
    found: dict[str, Any] = {"name": row.name, "group": row.group, "at_most": row.at_most}
    if isinstance(times, str):
        return found | {"refused": times, "held": False}
    medians = {library: statistics.median(taken) for library, taken in times.items()}
    found["us"] = {library: t * 1e6 for library, t in medians.items()}
    found["us_by_round"] = {library: [t * 1e6 for t in taken] for library, taken in times.items()}
    if "torch" in times:
        found["ratio"] = medians["norch"] / medians["torch"]
        found["median_of_ratios"] = statistics.median(a / b for a, b in zip(times["norch"], times["torch"]))
        found["held"] = found["ratio"] <= row.at_most
    if row.flops:
        found["limit"] = {"flops": machine.peak_of(row)}
        found["reached"] = row.flops / medians["norch"] / machine.peak_of(row)
    elif row.moved:
        found["limit"] = {"bytes_a_second": machine.bandwidth(row.moved)}
        found["reached"] = row.moved / medians["norch"] / machine.bandwidth(row.moved)
    return found


def run(rows: list[Row], options: argparse.Namespace) -> dict[str, Any]:
    from cpu_limits import Machine
    from timing import Others

    machine, everyone = Machine(options.threads), Others()
    measured = []
    for at, row in enumerate(rows):
        progress(f"{at + 1} of {len(rows)}: {row.name}")
        tries = []
        while not tries or (tries[-1][0] > DISTURBED and len(tries) <= options.retries):
            others = Others()
            times = measure(row, options)
            tries.append((others.share() or 0.0, times))
            machine.note(row, times)
            gc.collect()
        measured.append((row, *min(tries, key=lambda t: t[0])))
    progress("the machine")
    limits: dict[str, Any] = {}
    if any(row.moved for row in rows):
        limits["bytes_a_second"] = {str(s << 20): machine.bandwidth(s << 20) for s in (2, 32, 512)}
    if any(row.flops for row in rows):
        limits["flops"], limits["flops_by"] = machine.peak()
    if any(row.tile_products for row in rows):
        limits["tile_flops"] = machine.tile_peak()
    results = [figures(row, times, machine) | {"others": share} for row, share, times in measured]
    progress("")
    return {**surroundings(options), "others": everyone.share() or 0.0, "limits": limits, "rows": results}


def progress(text: str) -> None:
    """Shows what is being measured to whoever waits for it."""
    if sys.stderr.isatty():
        print(f"\r{text:<60}\r", end="", file=sys.stderr, flush=True)


def surroundings(options: argparse.Namespace) -> dict[str, Any]:
    """What the figures were taken with."""
    from cpu_rows import norch, np, torch

    versions = {"python": platform.python_version(), "norch-core": norch.__version__, "numpy": np.__version__}
    if torch is not None:
        versions["torch"] = torch.__version__
    provider = type(norch.Device("cpu").backend).__module__.partition(".")[0]
    if provider != "norch":
        try:
            versions["norch-cpu"] = importlib.metadata.version(provider.replace("_", "-"))
        except importlib.metadata.PackageNotFoundError:
            versions["norch-cpu"] = "unknown"
    chosen = getattr(norch.cpu, "instruction_set", None)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": options.threads,
        "quick": options.quick,
        "versions": versions,
        "backend": "norch's NumPy reference" if provider == "norch" else provider,
        "instruction_set": chosen() if chosen else None,
    }


def commit() -> str | None:
    """Of this checkout, if it is one."""
    ask = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        found = subprocess.run(ask, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def processor() -> str:
    """The processor's name."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


# --- Showing ----------------------------------------------------------------------------------------------------------


def duration(us: float | None) -> str:
    """Three digits and a unit."""
    if us is None:
        return "-"
    unit, value = ("us", us) if us < 1e3 else ("ms", us / 1e3) if us < 1e6 else ("s", us / 1e6)
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f} {unit}"


def limit(result: Mapping[str, Any]) -> str:
    """What the machine could do at most."""
    if "limit" not in result:
        return ""
    (kind, value), *_ = result["limit"].items()
    return f"{value / 1e9:.0f} {'GB/s' if kind == 'bytes_a_second' else 'Gflop/s'}"


def table(report: Mapping[str, Any]) -> str:
    """The rows, by group."""
    lines = [
        f"{'':<32}{'norch':>9}{'torch':>9}{'numpy':>9}{'to torch':>10}{'at most':>9}   {'machine':>12}{'of it':>7}"
    ]
    group = None
    for r in report["rows"]:
        if r["group"] != group:
            group = r["group"]
            lines += ["", group]
        if "refused" in r:
            lines.append(f"  {r['name']:<30}  refused: {r['refused']}")
            continue
        times = "".join(f"{duration(r['us'].get(n)):>9}" for n in ("norch", "torch", "numpy"))
        marks = f"{' ' if r.get('held', True) else '!'}{'~' if r['others'] > DISTURBED else ' '}"
        ratio = f"{r['ratio']:>10.2f}{r['at_most']:>9.2f}" if "ratio" in r else " " * 19
        reached = f"{r['reached']:>7.0%}" if "reached" in r else ""
        lines.append(f"  {r['name']:<30}{times}{ratio} {marks}{limit(r):>12}{reached}".rstrip())
    return "\n".join([*lines, "", *summary(report)])


def summary(report: Mapping[str, Any]) -> list[str]:
    """What the table was taken with, and how many limits are held."""
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    built = f" ({report['instruction_set']})" if report["instruction_set"] else ""
    lines = [f"{report['cpu']}, {report['threads']} threads; {versions}; on {report['backend']}{built}"]
    limits = report["limits"]
    if "bytes_a_second" in limits:
        rates = [f"{rate / 1e9:.0f} at {int(size) >> 20} MiB" for size, rate in limits["bytes_a_second"].items()]
        lines.append(f"The machine moves, in GB/s: {', '.join(rates)} in all; a row's limit is that at its own size.")
    if "flops" in limits:
        lines.append(f"It multiplies and adds at {limits['flops'] / 1e9:.0f} Gflop/s: {limits['flops_by']}.")
    if limits.get("tile_flops"):
        lines.append(f"It multiplies bfloat16 at {limits['tile_flops'] / 1e9:.0f} Gflop/s.")
    compared = [r for r in report["rows"] if "held" in r]
    if compared:
        lines.append(f"{sum(r['held'] for r in compared)} of {len(compared)} limits held; ! marks one that is not.")
    disturbed = [r for r in report["rows"] if r["others"] > DISTURBED]
    if disturbed:
        lines.append(
            f"~ Other processes took {report['others']:.0%} of the processors' time, over {DISTURBED:.0%} in "
            f"{len(disturbed)} rows: these tell little."
        )
    return lines


def main() -> int:
    options = arguments()
    for variable in VARIABLES:
        os.environ[variable] = str(options.threads)
    # NumPy's OpenBLAS threads spin for 100 ms after a product, on the cores that the next library wants: now 0.1 ms.
    os.environ["OPENBLAS_THREAD_TIMEOUT"] = "18"
    if options.png:
        import cpu_chart  # before minutes of measuring: it needs matplotlib
    from cpu_models import MODELS
    from cpu_networks import NETWORKS
    from cpu_rows import OPS, SMALL, norch, torch

    if torch is None and options.check:
        sys.exit("--check needs PyTorch, which the limits are ratios to")
    rows = [*SMALL, *MODELS, *NETWORKS, *OPS]
    groups = list(dict.fromkeys(r.group for r in rows))
    rows.sort(key=lambda r: groups.index(r.group))
    if options.only:
        rows = [r for r in rows if re.search(options.only, f"{r.group}: {r.name}", re.I)]
    if not rows:
        sys.exit(f"no row is called {options.only!r}")
    norch.set_num_threads(options.threads)
    if torch is not None:
        torch.set_num_threads(options.threads)
    report = run(rows, options)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    if options.png:
        cpu_chart.draw(report, options.png)
    print(table(report))
    return int(options.check and not all(r["held"] for r in report["rows"]))


if __name__ == "__main__":
    sys.exit(main())
