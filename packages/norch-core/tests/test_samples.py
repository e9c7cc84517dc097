"""Every op against its sample record: see norch.testing.samples."""

from __future__ import annotations

import pytest

from norch.dtype import bool_, float32, int32
from norch.testing.samples import LAYOUTS, SAMPLES, checks

RECORDS = list(SAMPLES.values())


def each(wanted=lambda sample: True):
    chosen = [s for s in RECORDS if wanted(s)]
    return pytest.mark.parametrize("sample", chosen, ids=[s.name for s in chosen])


@each()
def test_values_in_every_dtype(sample, device):
    checks.check_values(sample, device)


@each()
@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_layouts(sample, layout, device):
    checks.check_values(sample, device, layout, (float32, int32, bool_))


@each(lambda s: s.special)
def test_special_values(sample, device):
    if float32 in sample.dtypes:
        checks.check_special_values(sample, device)


@each(lambda s: s.promotes)
def test_promotion(sample, device):
    checks.check_promotion(sample, device)


@each(lambda s: s.promotes)
def test_shapes_that_do_not_broadcast(sample, device):
    checks.check_shapes_refused(sample, device)


@each(lambda s: s.refused)
def test_refuses_other_dtypes(sample, device):
    checks.check_refusals(sample, device)


@each(lambda s: s.method_name)
def test_method(sample, device):
    checks.check_method(sample, device)


@each(lambda s: s.inplace)
def test_inplace(sample, device):
    checks.check_inplace(sample, device)


@each(lambda s: s.differentiable)
def test_gradients(sample, device):
    checks.check_gradients(sample, device)


@each(lambda s: s.differentiable)
def test_gradients_of_other_layouts(sample, device):
    checks.check_gradients(sample, device, "transposed", second=False)
