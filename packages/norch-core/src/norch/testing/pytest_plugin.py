"""The options of the conformance kit under pytest: see norch.testing.conformance."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("norch")
    group.addoption("--norch-device", default="cpu", help="the device that norch.testing.conformance tries (cpu)")
    group.addoption("--norch-levels", default="1-9", help="the levels that it tries, such as 3 or 1-4 (all)")
