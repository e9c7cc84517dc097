"""examples/ddp_mnist.py: in two processes the losses are those of one, and it goes on from a checkpoint."""

import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

EXAMPLE = Path(__file__).parents[1] / "examples" / "ddp_mnist.py"


def write_idx(path, array):
    path.write_bytes(
        struct.pack(f">I{array.ndim}I", 0x800 | array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    )


def make_up(folder):
    """Ten patterns under noise, in Fashion-MNIST's format: 256 pictures to learn from, 51 to be tested on."""
    draws = np.random.default_rng(0)
    patterns = draws.integers(0, 160, (10, 7, 7)).repeat(4, 1).repeat(4, 2)
    for part, count in (("train", 256), ("t10k", 51)):
        labels = draws.integers(0, 10, count)
        write_idx(folder / f"{part}-images-idx3-ubyte", patterns[labels] + draws.integers(0, 90, (count, 28, 28)))
        write_idx(folder / f"{part}-labels-idx1-ubyte", labels)


def run(cwd, ranks, *args):
    """The rows of a run, without the seconds."""
    beside = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if ranks > 1 and mpirun is None:
        pytest.skip("no mpirun")
    launcher = [mpirun, "-n", str(ranks)] if ranks > 1 else []
    command = [*launcher, sys.executable, str(EXAMPLE), "--data", ".", "--unverified", *args]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return re.findall(r"^epoch (\d): loss (\S+), test loss (\S+), accuracy (\S+)%", done.stdout, re.MULTILINE)


def numbers(rows):
    return [float(number) for row in rows for number in row]


def test_two_processes_learn_what_one_does(tmp_path):
    pytest.importorskip("mpi4py")
    make_up(tmp_path)
    alone = run(tmp_path, 1, "--epochs", "2")
    together = run(tmp_path, 2, "--epochs", "1")
    together += run(tmp_path, 2, "--epochs", "2", "--resume")
    assert [row[0] for row in together] == ["1", "2"]
    assert numbers(together) == pytest.approx(numbers(alone), rel=1e-3)
    assert float(alone[1][1]) < float(alone[0][1])
