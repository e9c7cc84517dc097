"""Collectives over MPI: the programs compare with NumPy themselves."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(("n", "hosts"), [(2, ""), (3, "1")])
def test_collectives_compute_what_numpy_does(mpirun: Any, n: int, hosts: str) -> None:
    done = mpirun(n, "collectives.py", env={"SEVERAL_HOSTS": hosts})
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {r} of {n}: all right" for r in range(n)]
    assert not done.stderr
