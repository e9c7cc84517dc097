"""A model cut over processes equals the whole one: what gradients pass through, tensor and pipeline parallel."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("program", "n"),
    [("functional_collectives.py", 4), ("tensor_parallel.py", 2), ("tensor_parallel.py", 4), ("pipeline.py", 4)],
)
def test_a_cut_model_equals_the_whole(mpirun: Any, program: str, n: int) -> None:
    done = mpirun(n, program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line.partition(":")[0] for line in done.stdout.splitlines()) == [f"rank {r}" for r in range(n)]
