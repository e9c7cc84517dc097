"""Weights of few bits beside llama.cpp's own package, and the linear layer on them."""

from __future__ import annotations

import io
import struct
import sys

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(5)
FORMATS = ("int8", "q8_0", "q4_0")
LEVELS = {"int8": 254, "q8_0": 254, "q4_0": 16}  # half a step, of the largest of those that share a scale


def kind_of(format):
    package = pytest.importorskip("gguf")
    return package.GGMLQuantizationType[format.upper()]


def weights():
    """Normal ones; zeros; a large one among small ones; halves of steps; ones beyond a scale of float16."""
    w = RNG.standard_normal((7, 96)).astype(np.float32)
    w[1, :32] = 0
    w[2, 40] = 1000
    w[3, :32] = np.arange(32) * 0.5 - 7.5
    w[3, 0] = 127
    w[4] *= 1e-7
    w[5] = -np.abs(w[5])
    return w


@pytest.mark.parametrize("format", FORMATS[1:])
def test_blocks_are_those_of_the_package(format):
    quants = pytest.importorskip("gguf.quants")

    w, kind = weights(), kind_of(format)
    want = quants.quantize(w, kind)
    found = norch.quantize_weight(norch.tensor(w), format)
    assert found.scale is None
    assert np.array_equal(found.weight.numpy(), want)
    assert np.array_equal(
        norch.dequantize_weight(norch.tensor(want), features=96).numpy(), quants.dequantize(want, kind)
    )


def test_any_blocks_are_read_as_the_package_reads_them():
    quants = pytest.importorskip("gguf.quants")

    for format, size in (("q8_0", 34), ("q4_0", 18)):
        raw = RNG.integers(0, 256, (5, 3 * size), np.uint8)
        raw[:, 1::size] &= 0x3B  # no exponent of infinity
        found = norch.dequantize_weight(norch.tensor(raw), features=96).numpy()
        assert np.array_equal(found, quants.dequantize(raw, kind_of(format)))


@pytest.mark.parametrize("format", FORMATS)
def test_a_number_is_off_by_half_a_step(format):
    w = RNG.standard_normal((4, 5, 64)).astype(np.float32)
    found = norch.quantize_weight(norch.tensor(w), format)
    got = norch.dequantize_weight(*found, features=64).numpy()
    shared = w if format == "int8" else w.reshape(4, 5, 2, 32)
    most = np.abs(shared).max(-1, keepdims=True)
    # Of 4 bits there is no +8, so that the largest of that sign is off by a whole step; scales are rounded to float16.
    room = most / LEVELS[format] * (1.002 if format != "q4_0" else 2.02) + most * 2**-11
    assert np.all(np.abs(got.reshape(shared.shape) - shared) <= room)


def test_int8_has_a_scale_for_each_row():
    w = norch.tensor([[1.0, -0.5, 0.25], [0.0, 0.0, 0.0], [-254.0, 2.0, 0.0]])
    found = norch.quantize_weight(w)
    assert found.weight.dtype is norch.int8
    assert found.weight.tolist() == [[127, -64, 32], [0, 0, 0], [-127, 1, 0]]
    assert np.allclose(found.scale.numpy(), [1 / 127, 0, 2])
    assert norch.quantize_weight(norch.zeros(2, 0)).scale.tolist() == [0, 0]


@pytest.mark.parametrize("format", FORMATS)
def test_it_needs_no_more_than_the_public_function(format, device):
    """What it gives is the product with what the weight stands for."""
    w, x = norch.tensor(RNG.standard_normal((3, 64))).float(), norch.tensor(RNG.standard_normal((2, 5, 64))).float()
    found = norch.quantize_weight(w, format)
    numbers = norch.dequantize_weight(*found, features=64).double().numpy()
    there = [None if t is None else t.to(device) for t in found]
    got = norch.quantized_linear(x.to(device), *there).cpu().double().numpy()
    room = np.abs(x.double().numpy()).max() / 254 * np.abs(numbers).sum(-1)
    assert got.shape == (2, 5, 3)
    assert np.all(np.abs(got - x.double().numpy() @ numbers.T) <= room * 1.01)


def test_gradients_go_to_input_and_bias_only():
    w = norch.quantize_weight(norch.randn(3, 64), "q4_0").weight
    x, bias = norch.randn(2, 64, requires_grad=True), norch.zeros(3, requires_grad=True)
    norch.quantized_linear(x, w, None, bias).sum().backward()
    assert norch.allclose(x.grad, norch.dequantize_weight(w, features=64).sum(0).expand(2, 64), atol=1e-5)
    assert bias.grad.tolist() == [2, 2, 2]
    with pytest.raises(norch.DTypeError, match="only floating tensors can require grad"):
        w.requires_grad_()


X, BYTES, INT8 = norch.ones(2, 32), norch.zeros(3, 34, dtype=norch.uint8), norch.zeros(3, 32, dtype=norch.int8)
SCALE = norch.ones(3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: norch.quantized_linear(X, norch.ones(3, 32)), norch.DTypeError, "is not quantised"),
        (lambda: norch.quantized_linear(X, INT8), norch.DTypeError, "needs the scale of each of its rows"),
        (lambda: norch.quantized_linear(X, BYTES, SCALE), norch.DTypeError, "holds its scales"),
        (lambda: norch.quantized_linear(X, INT8, SCALE.to(norch.int32)), norch.DTypeError, "scale must be floating"),
        (lambda: norch.quantized_linear(X, INT8, SCALE[:2]), norch.ShapeError, r"scale \(2,\) do not fit"),
        (lambda: norch.quantized_linear(X, BYTES[:, :33]), norch.ShapeError, "1 blocks of 34 bytes"),
        (lambda: norch.quantized_linear(X[:, :31], BYTES), norch.ShapeError, "multiple of 32"),
        (
            lambda: norch.quantized_linear(X.int(), BYTES),
            norch.DTypeError,
            "expected a floating dtype, got norch.int32",
        ),
        (lambda: norch.quantized_linear(X, BYTES, None, SCALE.half()), norch.DTypeError, "bias of norch.float16"),
        (lambda: norch.quantized_linear(X, BYTES, None, SCALE[:2]), norch.ShapeError, r"bias \(2,\) does not fit"),
        (lambda: norch.quantized_linear(X, BYTES[0]), norch.ShapeError, "a weight of 2 dims"),
        (lambda: norch.quantize_weight(X, "q5_0"), ValueError, "must be one of int8, q8_0, q4_0"),
        (lambda: norch.quantize_weight(X[:, :31], "q8_0"), norch.ShapeError, "a multiple of 32"),
        (lambda: norch.quantize_weight(INT8), norch.DTypeError, "expected a floating dtype"),
        (lambda: norch.dequantize_weight(X, features=32), norch.DTypeError, "is not quantised"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def gguf_file(tensors):
    """tensors: type, shape and bytes of each by name."""
    text = lambda value: struct.pack("<Q", len(value)) + value.encode()  # noqa: E731
    head, data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0), b""
    for name, (kind, shape, content) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % 32)
    return head + bytes(-len(head) % 32) + data


def test_blocks_of_a_file_stay_as_they_are_stored(tmp_path, monkeypatch):
    raw = {"eight": RNG.integers(0, 100, (3, 68), np.uint8), "four": RNG.integers(0, 100, (2, 18), np.uint8)}
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_file({
        "eight": (8, (3, 64), raw["eight"].tobytes()), "four": (2, (2, 32), raw["four"].tobytes()),
        "float": (0, (2,), np.ones(2, np.float32).tobytes()),
    }))  # fmt: skip
    monkeypatch.setitem(sys.modules, "gguf", None)  # which is not needed
    for found in (norch.load(path, dequantize=False), norch.load(path, mmap=True, dequantize=False)):
        assert found["float"].tolist() == [1, 1]
        for name, want in raw.items():
            assert found[name].dtype is norch.uint8
            assert np.array_equal(found[name].numpy(), want)
    found = norch.load(io.BytesIO(path.read_bytes()), "meta", dequantize=False)
    assert tuple(found["eight"].shape) == (3, 68)
    assert found["eight"].dtype is norch.uint8
