"""examples/parallel_gpt.py learns the same in one process and cut over four."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import norch

EXAMPLE = Path(__file__).parents[1] / "examples" / "parallel_gpt.py"
SMALL = "--width 16 --depth 2 --context 8 --batch 8 --microbatches 2 --steps 6 --every 3".split()


def losses(folder: Path, n: int, *args: str) -> list[float]:
    beside = Path(sys.executable).with_name("mpirun")
    command = str(beside) if beside.exists() else shutil.which("mpirun")
    if command is None:
        pytest.skip("no mpirun")
    done = subprocess.run(
        [command, "-n", str(n), sys.executable, str(EXAMPLE), *SMALL, "--save", str(folder), *args],
        capture_output=True, text=True, timeout=60, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [float(x) for x in re.findall(r"loss (\S+)", done.stdout)]


def test_four_processes_learn_what_one_does(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    one = losses(tmp_path / "one", 1)
    assert len(one) == 3
    assert losses(tmp_path / "four", 4, "--tensor", "2", "--pipeline", "2") == pytest.approx(one, rel=1e-4)
    whole = norch.load(tmp_path / "one" / "stage0.safetensors")
    stages = [norch.load(tmp_path / "four" / f"stage{i}.safetensors") for i in (0, 1)]
    assert sorted(whole) == sorted([*stages[0], *stages[1]])
    for name, value in (stages[0] | stages[1]).items():
        assert value.shape == whole[name].shape
        # Of a key's bias the gradient is 0, of whose rounding Adam makes whole steps.
        assert (value - whole[name]).abs().median() < 1e-5, name
