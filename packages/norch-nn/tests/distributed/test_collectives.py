"""Collectives over MPI: the programs compare with NumPy themselves."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("n", [2, 3])
def test_collectives_compute_what_numpy_does(mpirun: Any, n: int) -> None:
    done = mpirun(n, "collectives.py")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {r} of {n}: all right" for r in range(n)]
    assert not done.stderr
