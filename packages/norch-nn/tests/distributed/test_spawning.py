"""Scripts that start their own processes run by mpirun; those that read torchrun's variables find them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")

PROGRAM = str(Path(__file__).parent / "programs" / "spawning.py")


def run(*command):
    if not (Path(sys.executable).with_name("mpirun").exists() or shutil.which("mpirun")):
        pytest.skip("no mpirun")
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60)


def test_spawn():
    done = run(PROGRAM, "fails")
    assert sorted(done.stdout.splitlines()) == [f"fails {rank} of 2: 3, RANK=None" for rank in range(2)]
    assert "spawn(): the processes ended with status 3" in done.stderr


def test_spawn_in_processes_that_are_there():
    done = run("-m", "norch", "run", "-n", "2", PROGRAM, "works")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"works {rank} of 2: 3, RANK={rank}" for rank in range(2)]
