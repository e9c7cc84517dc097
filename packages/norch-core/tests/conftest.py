"""What the tests of norch-core share."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", action="append", default=[], help="run the sample tests on this device as well (may come twice)"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        extra = metafunc.config.getoption("--device")
        metafunc.parametrize("device", list(dict.fromkeys(["cpu", *extra])), scope="session")


@pytest.fixture(autouse=True, scope="session")
def _cpu_backend() -> None:
    try:
        import norch.backend.registry  # noqa: F401
    except ImportError:
        from norch.device import CPU
        from norch.numpy_backend.backend import NumpyBackend

        CPU._backend = NumpyBackend()
