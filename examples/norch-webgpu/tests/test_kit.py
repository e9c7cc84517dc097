"""norch's conformance kit, in parts that processes can share. `norch conformance --device webgpu` shows its table."""

import pytest

import norch
from norch.testing import conformance

SIZE = 200
PARTS = {
    f"{level}-{1 + start // SIZE}": cases[start : start + SIZE]
    for level in conformance.LEVELS
    if (cases := list(conformance.cases((level,))))
    for start in range(0, len(cases), SIZE)
}


@pytest.mark.parametrize("part", PARTS)
def test_part(part):
    device = norch.device("webgpu")
    results = [conformance.check(case, device) for case in PARTS[part]]
    assert not [f"{r.case.id}: {r.error}" for r in results if r.error]
