"""examples/fsdp_gpt.py as a user runs it: on two processes, and on from the checkpoint on one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tqdm")
pytest.importorskip("mpi4py")

ROOT = Path(__file__).parents[1]
SMALL = "--width 16 --depth 2 --heads 2 --context 16 --batch 8 --lr 1e-2 --warmup 4 --every 4 --sample 20".split()
ROW = re.compile(r"^ *(\d+) +(\d\.\d{4}) +(\d\.\d{4}) +\S+$", re.MULTILINE)


def run(n, cwd, *args):
    beside = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun")
    command = [mpirun, "-n", str(n), sys.executable, str(ROOT / "examples" / "fsdp_gpt.py"), *args]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_learns_and_goes_on_with_another_number_of_processes(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 60, encoding="utf-8")
    found = run(2, tmp_path, "--text", str(text), "--steps", "12", *SMALL)
    rows = [[float(x) for x in row] for row in ROW.findall(found)]
    assert [row[0] for row in rows] == [4, 8, 12]
    assert rows[0][2] > rows[1][2] > rows[2][2]
    whole, own = (int(n.replace(",", "")) for n in re.match(r"([\d,]+) weights, ([\d,]+) of them", found).groups())
    assert own <= 1.1 * whole / 2
    again = run(1, tmp_path, "--text", str(text), "--resume")
    assert "from step 12 on" in again
    assert re.search(r"validation loss (\S+),", again)[1] == re.search(r"validation loss (\S+),", found)[1]
