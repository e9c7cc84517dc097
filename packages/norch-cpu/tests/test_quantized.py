"""Linear layers on weights of few bits, against what these stand for: few rows, which are rounded, and many."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(4)
FORMATS = ("int8", "q8_0", "q4_0")
UNIT = {"float32": 2.0**-23, "bfloat16": 2.0**-8, "float16": 2.0**-11}
ROWS = (1, 2, 3, 4, 5, 16, 17, 37)
# Rows of the weight, and features: tiles of 4 and what is left beside them, several pieces, blocks that are not full.
SIZES = [(1, 32), (3, 64), (7, 96), (40, 33), (9, 5), (2, 1), (300, 576), (130, 64)]


def normal(dtype, *shape):
    return norch.tensor(RNG.standard_normal(shape)).to(getattr(norch, dtype))


def assert_near(got, x, weight, bias=None, steps=1.0):
    """Off by a rounding of the result, and of each of 32 numbers by half a step of 1/127 of the largest."""
    numbers = norch.dequantize_weight(*weight, features=x.shape[-1]).double().numpy()
    values = x.double().numpy()
    want = values @ numbers.T + (0 if bias is None else bias.double().numpy())
    padded = np.zeros((*values.shape[:-1], -(-values.shape[-1] // 32), 32))
    padded.reshape(*values.shape[:-1], -1)[..., : values.shape[-1]] = np.abs(values)
    half = np.repeat(padded.max(-1, initial=0), 32, -1)[..., : values.shape[-1]] / 254
    unit = UNIT[str(got.dtype).removeprefix("norch.")]
    size = np.abs(values) @ np.abs(numbers).T
    room = steps * (half @ np.abs(numbers).T) * 1.0001 + unit * (np.abs(want) + 4 * size) + 1e-30
    assert tuple(got.shape) == want.shape
    assert np.all(np.abs(got.double().numpy() - want) <= room)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values(format, size):
    if format != "int8" and size[1] % 32:
        pytest.skip("it has whole blocks")
    weight = norch.quantize_weight(normal("float32", *size), format)
    for dtype in UNIT:
        bias = normal(dtype, size[0])
        for rows in ROWS:
            x = normal(dtype, rows, size[1])
            assert_near(norch.quantized_linear(x, *weight), x, weight)
            assert_near(norch.quantized_linear(x, *weight, bias=bias), x, weight, bias)


@pytest.mark.parametrize("format", FORMATS)
def test_all_numbers_of_a_weight_and_of_a_row(format):
    """The largest of each sign, together: nothing overflows. -128 is in no weight of ours, but may be in a file's."""
    for fill in (0x80, 0x7F, 0x00, 0xFF, 0x08, 0xF7):
        raw = np.full((5, 64 if format == "int8" else 2 * (34 if format == "q8_0" else 18)), fill, np.uint8)
        if format == "int8":
            weight = norch.tensor(raw.view(np.int8)), norch.ones(5)
        else:
            raw.reshape(5, 2, -1)[..., :2] = np.array([0.5], np.float16).view(np.uint8)
            weight = norch.tensor(raw), None
        for sign in (1, -1):
            x = norch.full((3, 64), 127.0 * sign)
            assert_near(norch.quantized_linear(x, *weight), x, weight, steps=0)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("rows", [2, 20])
def test_any_layout(format, rows):
    weight = norch.quantize_weight(normal("float32", 6, 64), format)
    x = normal("float32", rows, 64)
    want = norch.quantized_linear(x, *weight)
    wide = norch.cat([weight.weight, weight.weight], 1)[:, : weight.weight.shape[1]]
    spread = norch.stack([weight.weight, weight.weight], -1)[..., 0]
    for w in (wide, spread):
        assert norch.allclose(norch.quantized_linear(x, w, weight.scale), want, rtol=0.02, atol=0.2)
    for like in (x.mT.contiguous().mT, norch.stack([x, x], -1)[..., 0], norch.cat([x, x])[rows:]):
        assert norch.allclose(norch.quantized_linear(like, *weight), want, rtol=1e-5, atol=1e-4)
    lead = norch.quantized_linear(x.reshape(rows // 2, 2, 64).transpose(0, 1), *weight)
    assert norch.allclose(lead.transpose(0, 1).reshape(rows, 6), want, rtol=0.02, atol=0.2)
    assert_near(norch.quantized_linear(x[0], *weight), x[0], weight)
    same = norch.quantized_linear(x[:1].expand(rows, 64), *weight)
    assert norch.equal(same, same[:1].expand(rows, 6))


@pytest.mark.parametrize("format", FORMATS)
def test_scale_and_bias_of_other_layouts_and_dtypes(format):
    weight, x = norch.quantize_weight(normal("float32", 6, 64), format), normal("float32", 2, 64)
    bias = normal("float32", 6)
    want = norch.quantized_linear(x, *weight, bias=bias)
    stepped = [None if t is None else norch.stack([t, t], -1)[..., 0] for t in (weight.scale, bias)]
    assert norch.equal(norch.quantized_linear(x, weight.weight, *stepped), want)
    if weight.scale is not None:
        assert norch.allclose(norch.quantized_linear(x, weight.weight, weight.scale.bfloat16(), bias), want, 0.02, 0.2)


@pytest.mark.parametrize("format", FORMATS)
def test_empty(format):
    weight = norch.quantize_weight(norch.ones(3, 32), format)
    assert norch.quantized_linear(norch.ones(0, 32), *weight).shape == (0, 3)
    none = norch.quantize_weight(norch.ones(0, 32), format)
    assert norch.quantized_linear(norch.ones(2, 32), *none).shape == (2, 0)
    without = norch.quantize_weight(norch.ones(3, 0), format)
    assert norch.quantized_linear(norch.ones(2, 0), *without, bias=norch.arange(3.0)).tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("rows", [1, 20])
def test_numbers_that_cannot_be_rounded(format, rows):
    """Infinities, NaNs and numbers near the smallest come out as of any product."""
    weight = norch.quantize_weight(normal("float32", 3, 64), format)
    numbers = norch.dequantize_weight(*weight, features=64)
    for value in (float("inf"), float("nan"), 1e-39, 3e38, 1e-30, 1e29):
        x = norch.zeros(rows, 64)
        x[0, 7] = value
        want = (x.double() @ numbers.double().T).float()
        got = norch.quantized_linear(x, *weight)
        assert norch.allclose(got / value, want / value, rtol=1e-2, atol=1e-2, equal_nan=True)
        assert norch.equal(got.isnan(), want.isnan())


@pytest.mark.parametrize("format", FORMATS)
def test_threads_change_no_bit(format):
    weight, before = norch.quantize_weight(normal("float32", 999, 576), format), norch.get_num_threads()
    for rows in (1, 8, 40):
        x, found = normal("float32", rows, 576), []
        for threads in (1, 3):
            norch.set_num_threads(threads)
            found.append(norch.quantized_linear(x, *weight))
        norch.set_num_threads(before)
        assert norch.equal(*found)


def test_without_vnni():
    """The same tests on a processor that has it, as if it had not."""
    if "NORCH_CPU_VNNI" in os.environ:
        pytest.skip("this is that run")
    about = Path("/proc/cpuinfo")
    if not about.exists() or "avx512_vnni" not in about.read_text():
        pytest.skip("this processor has none")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:benchmark", "-k", "values or all_numbers", __file__],
        env={**os.environ, "NORCH_CPU_VNNI": "0"}, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
