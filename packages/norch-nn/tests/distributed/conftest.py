"""Programs of several processes: a test starts one with `mpirun` and looks at what it printed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _mpirun() -> str | None:
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else shutil.which("mpirun")


def launch(n: int, program: str, *args: Any, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Starts a file or a folder of programs/ in n processes. Skips the test where there is no MPI."""
    pytest.importorskip("mpi4py")
    command = _mpirun()
    if command is None:
        pytest.skip("no mpirun")
    return subprocess.Popen(
        [command, "-n", str(n), sys.executable, str(PROGRAMS / program), *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Buffered, so that processes write whole lines.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "", **(env or {})},
        start_new_session=True,
    )


@pytest.fixture
def start() -> Callable[..., Any]:
    """`start(n, "program.py", *args, env={})` starts a file of programs/ in n processes, and returns the Popen."""
    return launch


@pytest.fixture
def mpirun() -> Run:
    """`mpirun(n, "program.py", *args, timeout=60, env={})` runs a file of programs/ in n processes."""

    def run(n: int, program: str, *args: Any, timeout: float = 60, env: dict[str, str] | None = None) -> Any:
        process = launch(n, program, *args, env=env)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.terminate()  # mpirun ends its processes
            out, err = process.communicate()
            pytest.fail(f"{program} took over {timeout} s\n{out}\n{err}")
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run
