"""Every op against its sample record: see norch.testing.samples. On the CPU all of it; on other devices what a backend
can get wrong."""

from __future__ import annotations

import struct

import pytest

import norch
from norch.backend.contract import Operand
from norch.dtype import bfloat16, bool_, float32, int32, int64, uint8
from norch.testing.null import null_device
from norch.testing.samples import LAYOUTS, SAMPLES, checks
from norch.testing.strict import StrictBackend, strict_device

SOME = (bool_, uint8, int64, bfloat16, float32)
"""Dtypes for devices that take their time."""

FLOATS = Operand(float32, (2, 3), (3, 1))


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


def test_operands_on_two_devices_are_refused():
    strict_device()
    here, there = norch.ones(2), norch.ones(2, device="strict")
    with pytest.raises(norch.DeviceError, match=r"add\(\).*cpu, strict"):
        here + there
    assert (there + norch.tensor(2.0)).tolist() == [3, 3]  # a 0-d tensor on the CPU goes anywhere


def test_null_backend_makes_specs_only():
    device = null_device()
    x = norch.empty(4, 3, device=device).requires_grad_()
    y = (x @ x.T).softmax(0).sum(1)
    y.sum().backward()
    assert y.shape == (4,)
    assert x.grad.shape == (4, 3)
    assert y.tolist() == [0, 0, 0, 0]
    assert null_device() is device


@pytest.mark.parametrize(
    ("what", "operands", "attrs"),
    [
        ("add", (FLOATS, FLOATS, FLOATS._replace(dtype=int32)), {}),
        ("add", (FLOATS, FLOATS, FLOATS._replace(shape=(3,), strides=(1,))), {}),
        ("add", (FLOATS._replace(strides=(0, 1)), FLOATS, FLOATS), {}),
        ("neg", (FLOATS, FLOATS._replace(strides=(-3, 1))), {}),
        ("exp", (FLOATS._replace(dtype=int32),) * 2, {}),
        ("sum", (FLOATS, FLOATS), {"dims": (0,)}),
        ("argmax", (FLOATS._replace(shape=(1, 3)), FLOATS), {"dims": (0,)}),
        ("gather", (FLOATS, FLOATS, FLOATS), {"dim": 0}),
    ],
)
def test_strict_refuses_what_the_contract_does_not_promise(what, operands, attrs):
    with pytest.raises(norch.BackendError, match=what):
        StrictBackend().compile(what, operands, attrs)


def test_strict_refuses_kernel_calls_outside_of_buffers():
    backend = StrictBackend()
    kernel = backend.compile("add", (FLOATS, FLOATS, FLOATS), {})
    out, x = backend.allocate(24, 0), backend.allocate(28, 0)
    kernel(out, 0, x, 1, x, 0)
    for wrong in (
        (out, 1, x, 0, x, 0),
        (out, 0, x, 2, x, 0),
        (out, 0, x, 0),
        (x, 0, x, 1, x, 0),
        (out, 0, x, 0, x, -1),
    ):
        with pytest.raises(norch.BackendError, match="strict"):
            kernel(*wrong)


def test_strict_shows_unread_memory():
    assert norch.empty(2, device=strict_device()).tolist() == [struct.unpack("f", b"\x55" * 4)[0]] * 2
