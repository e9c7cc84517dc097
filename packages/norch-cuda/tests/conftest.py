"""What the tests of norch-cuda share: those that ask for `cuda` need a GPU and are skipped without one."""

from __future__ import annotations

import os

import numpy as np
import pytest

import norch


@pytest.fixture(scope="session")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The device "cuda". Large fused programs are compiled, where NVRTC is there, and not kept."""
    os.environ["NORCH_CACHE_DIR"] = str(tmp_path_factory.mktemp("norch"))
    if not norch.cuda.is_available():
        pytest.skip("needs a GPU")
    return "cuda"


@pytest.fixture(autouse=True)
def same_numbers(request: pytest.FixtureRequest) -> None:
    """A file's generator begins anew, so that a test's numbers do not depend on which tests its process ran before."""
    if hasattr(request.module, "RNG"):
        request.module.RNG = np.random.default_rng(5)
