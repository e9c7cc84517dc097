"""The conformance kit on "newdevice", a test for each level."""

from __future__ import annotations

import pytest

import norch
from norch.testing import conformance


@pytest.mark.parametrize("level", conformance.LEVELS)
def test_conformance(level: int) -> None:
    report = conformance.run("newdevice", [level])
    assert report.passed, report.text()


def test_it_is_there() -> None:
    assert norch.newdevice.is_available()
    assert (norch.ones(3, device="newdevice") + 1).tolist() == [2, 2, 2]
