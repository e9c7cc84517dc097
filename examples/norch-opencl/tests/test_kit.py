"""norch's conformance kit, level by level. `norch conformance --device opencl` prints the table of it."""

import pytest

from norch.testing import conformance


@pytest.mark.parametrize("level", conformance.LEVELS)
def test_level(level):
    report = conformance.run("opencl", (level,))
    assert report.results
    assert report.passed, report.text()
