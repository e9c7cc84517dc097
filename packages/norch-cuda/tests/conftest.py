"""What the tests of norch-cuda share: those that ask for `cuda` need a GPU and are skipped without one."""

from __future__ import annotations

import os

import numpy as np
import pytest

import norch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, help="of the cases of a test run only so many, from the first to the last")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For sanitizers, under which a test takes fifty times as long."""
    count = config.getoption("--cases")
    if not count:
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {part[round(i * (len(part) - 1) / max(1, count - 1))] for part in tests.values() for i in range(count)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


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
