"""Every op against its sample record: see norch.testing.samples. On the CPU all of it; on other devices what a backend
can get wrong."""

from __future__ import annotations

import pytest

from norch.dtype import bfloat16, bool_, float32, int32, int64, uint8
from norch.testing.samples import LAYOUTS, SAMPLES, checks

SOME = (bool_, uint8, int64, bfloat16, float32)
"""Dtypes for devices that take their time."""


def each(wanted=lambda sample: True):
    chosen = [s for s in SAMPLES.values() if wanted(s)]
    return pytest.mark.parametrize("sample", chosen, ids=[s.name for s in chosen])


@each()
def test_values_in_every_dtype(sample, device):
    checks.check_values(sample, device, dtypes=None if device == "cpu" else SOME)


@each(lambda s: s.layouts)
def test_layouts(sample, device):
    for layout in LAYOUTS[1:] if device == "cpu" else ("stepped", "expanded"):
        checks.check_values(sample, device, layout, (float32, int32, bool_))


@each(lambda s: s.special and float32 in s.dtypes)
def test_special_values(sample, device):
    checks.check_special_values(sample, device)


@each(lambda s: s.promotes)
def test_promotion(sample, device):
    checks.check_promotion(sample, device)


@each(lambda s: s.inplace)
def test_inplace(sample, device):
    checks.check_inplace(sample, device, None if device == "cpu" else (float32, int32, bool_))


@each(lambda s: s.differentiable)
def test_gradients(sample, device):
    checks.check_gradients(sample, device)


@each(lambda s: s.differentiable and s.layouts)
def test_gradients_of_other_layouts(sample):
    checks.check_gradients(sample, layout="transposed", second=False)


@each(lambda s: s.view)
def test_views_share_memory(sample):
    checks.check_shares_memory(sample)


@each(lambda s: s.promotes)
def test_shapes_that_do_not_broadcast(sample):
    checks.check_shapes_refused(sample)


@each(lambda s: s.refused)
def test_refuses_other_dtypes(sample):
    checks.check_refusals(sample)


@each(lambda s: s.method_name)
def test_method(sample):
    checks.check_method(sample)
