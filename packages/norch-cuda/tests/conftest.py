"""What the tests of norch-cuda share: those that ask for `cuda` need a GPU and are skipped without one."""

from __future__ import annotations

import pytest

import norch


@pytest.fixture(scope="session")
def cuda() -> str:
    """The device "cuda"."""
    if not norch.cuda.is_available():
        pytest.skip("needs a GPU")
    return "cuda"
