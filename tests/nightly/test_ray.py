"""NorchTrainer on a Ray cluster of this machine: a run that loses a worker ends with the bits of one that did not."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not find_spec("ray") or not find_spec("mpi4py"), reason="needs Ray and MPI")

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1"}


def segments() -> set[str]:
    shared = Path("/dev/shm")
    return {p.name for p in shared.iterdir() if p.name.startswith(("mpich", "norch"))} if shared.exists() else set()


def test_a_run_ends_with_the_same_bits_whenever_a_worker_was_killed(tmp_path):
    from ray_runs import EPOCHS, INTERVAL, KILLS, STEPS

    command = [sys.executable, str(HERE / "ray_runs.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-4000:]
    runs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [run["name"] for run in runs] == list(KILLS)
    assert {run["metrics"]["steps"] for run in runs} == {EPOCHS * STEPS}
    assert len({run["metrics"]["bits"] for run in runs}) == 1
    for run in runs:  # nothing is lost but what came after the last checkpoint
        _, step, where = run["kill"] or (0, 0, "step")
        completed = step + (where == "report")
        assert run["metrics"]["start"] == completed // INTERVAL * INTERVAL, run["name"]
        assert len(run["processes"]) == (4 if run["kill"] else 2)  # two workers, and again two
        for process, *_ in run["processes"]:
            with pytest.raises(ProcessLookupError):
                os.kill(process, 0)
    after, deadline = segments(), time.monotonic() + 20
    while after & segments() and time.monotonic() < deadline:  # those that other tests have at this moment go
        time.sleep(0.1)
    assert not after & segments()


def test_the_example_learns_on_ray_what_it_does_alone(tmp_path):
    from test_ddp_mnist import EXAMPLE, make_up, run

    make_up(tmp_path)
    rows = run(tmp_path, 1, "--epochs", "2")
    on_ray = [sys.executable, str(EXAMPLE), "--data", ".", "--unverified", "--epochs", "2", "--ray", "2"]
    done = subprocess.run(on_ray, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    found = ast.literal_eval(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert [found["loss"], found["test_loss"]] == pytest.approx([float(n) for n in rows[1][1:3]], rel=1e-3)


def test_columns_become_tensors():
    import numpy as np

    import norch
    import norch.ray

    class Shard:
        def iter_batches(self, batch_size, batch_format):
            for i in range(3):
                lists = np.empty(2, object)
                lists[:] = [[i, 1], [i, 2]]
                yield {"n": np.array([i, i]), "l": lists, **more}

    more = {}
    batches = list(norch.ray.iter_norch_batches(Shard(), 2, dtypes={"l": norch.float16}, skip=1))
    assert [batch["n"].tolist() for batch in batches] == [[1, 1], [2, 2]]
    assert batches[0]["l"].tolist() == [[1, 1], [1, 2]]
    assert (batches[0]["n"].dtype, batches[0]["l"].dtype) == (norch.int64, norch.float16)
    assert batches[0]["l"].device.type == "cpu"
    more["text"] = np.array(["a", "b"])
    with pytest.raises(norch.DTypeError, match=r"column 'text' holds <U1, .* Dataset\.drop_columns"):
        next(norch.ray.iter_norch_batches(Shard(), 2))


def test_a_worker_computes_on_the_gpu_that_ray_gave_it(monkeypatch):
    import ray

    import norch
    import norch.ray

    assert norch.ray.get_device() == norch.device("cpu")
    monkeypatch.setattr(ray, "get_gpu_ids", lambda: [3])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")  # those of all workers on the node
    assert norch.ray.get_device() == norch.device("cuda:1")
