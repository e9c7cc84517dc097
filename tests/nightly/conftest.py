"""The nightly run: nothing is skipped but what needs a GPU, and with --record its result is written down."""

from __future__ import annotations

import datetime
import json
import platform
import re
import subprocess
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "nightly.json"
NEEDS_GPU = re.compile(r"GPU|CUDA|cuda")

# Other environments have no PyTorch.
collect_ignore = [] if find_spec("torch") else ["test_module_db.py", "test_op_db.py", "test_optim_db.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="fail where a test is skipped that needs no GPU")
    parser.addoption("--record", action="store_true", help=f"write the result to {RECORD.relative_to(ROOT)}")


def reason(report: Any) -> str:
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix("Skipped: ")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workerinput") or not config.getoption("--nightly"):
        return
    stats = config.pluginmanager.get_plugin("terminalreporter").stats
    skipped = Counter(reason(r) for r in stats.get("skipped", ()))
    avoidable = {why: count for why, count in skipped.items() if not NEEDS_GPU.search(why)}
    if avoidable:
        print(f"\nskipped, though this needs no GPU: {avoidable}")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
    if config.getoption("--record") and session.exitstatus != pytest.ExitCode.INTERRUPTED:
        RECORD.write_text(json.dumps(result(stats, skipped), indent=2) + "\n")


def result(stats: dict[str, list[Any]], skipped: Counter[str]) -> dict[str, Any]:
    import torch
    from beside_op_db import OPS, is_lacking

    import norch

    differences: Counter[str] = Counter()
    reports = [r for kind in ("passed", "failed") for r in stats.get(kind, ())]
    for report in reports:
        differences.update(dict(report.user_properties) if "test_op_db" in report.nodeid else {})
    lacking = sum(map(is_lacking, OPS.values()))
    samples = [r for r in reports if "test_op_db.py" in r.nodeid]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit.strip(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "backend": type(norch.device("cpu").backend).__module__.partition(".")[0],
        "passed": len(stats.get("passed", ())),
        "failed": len(stats.get("failed", ())) + len(stats.get("error", ())),
        "xfailed": len(stats.get("xfailed", ())),
        "skipped": dict(sorted(skipped.items())),
        "op_db": {
            "ops": len(OPS),
            "compared": len(OPS) - lacking,
            "lacking": lacking,
            "tests_passed": sum(r.passed for r in samples),
            "tests_failed": sum(r.failed for r in samples),
            "samples_of_documented_differences": dict(sorted(differences.items())),
        },
    }
