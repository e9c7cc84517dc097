"""What the tests of norch-core share."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", action="append", help='run the sample tests on this device (default: "cpu", "strict")')


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--device") or ["cpu", "strict"]
        metafunc.parametrize("device", chosen, scope="session", indirect=True)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """A device that ops run on; the test kit's own are registered first."""
    if request.param == "strict":
        from norch.testing.strict import strict_device

        strict_device()
    return str(request.param)
