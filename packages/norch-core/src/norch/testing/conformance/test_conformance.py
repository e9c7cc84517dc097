"""Every case of the kit as a test. The options are those of norch.testing.pytest_plugin."""

from __future__ import annotations

import pytest

from norch.device import Device
from norch.testing import conformance


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    levels = conformance.levels_of(metafunc.config.getoption("--norch-levels"))
    found = list(conformance.cases(levels))
    metafunc.parametrize("norch_case", found, ids=[case.id for case in found])


def test_conformance(norch_case: conformance.Case, request: pytest.FixtureRequest) -> None:
    name = request.config.getoption("--norch-device")
    result = conformance.check(norch_case, Device(name))
    if result.skipped or result.without:
        pytest.skip(result.skipped or f"{name} has no {result.without}")
    if result.error:
        pytest.fail(f"{result.error}\n\n{norch_case.snippet(name)}", pytrace=False)
