"""Collectives over MPI: the programs compare with NumPy themselves."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(("n", "hosts", "device"), [(2, "", "cpu"), (3, "1", "cpu"), (2, "", "strict")])
def test_collectives_compute_what_numpy_does(mpirun: Any, n: int, hosts: str, device: str) -> None:
    """No engine is for the device "strict": its tensors go by way of the CPU's."""
    done = mpirun(n, "collectives.py", env={"SEVERAL_HOSTS": hosts, "DEVICE": device})
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {r} of {n}: all right" for r in range(n)]
    assert not done.stderr
