"""DistributedDataParallel beside PyTorch's, in the same processes: programs/ddp_beside_torch.py says in what."""

import pytest


def test_gradients_are_pytorchs(mpirun):
    pytest.importorskip("torch")
    done = mpirun(2, "ddp_beside_torch.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("equal:") == 13
