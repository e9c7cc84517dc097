"""Matrix products on the GPU, against NumPy in float64."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import norch

FLOATS = [norch.float64, norch.float32, norch.float16, norch.bfloat16]
INTS = [norch.int64, norch.int32, norch.int16, norch.int8, norch.uint8]
LIMITS = {norch.float64: 1e-13, norch.float32: 2e-6, norch.float16: 2e-3, norch.bfloat16: 1.5e-2}


def tensor(array, dtype, device):
    return norch.tensor(np.ascontiguousarray(array), device=device).to(dtype)


def random(shape, dtype, device, seed=0):
    """A tensor and what it holds, in float64."""
    values = np.random.default_rng(seed).standard_normal(shape)
    made = tensor(values, dtype, device)
    return made, made.to("cpu").to(norch.float64).numpy()


def close(got, wanted, dtype):
    got = got.to("cpu").to(norch.float64).numpy()
    assert got.shape == wanted.shape
    scale = np.linalg.norm(wanted) or 1.0
    assert np.linalg.norm(got - wanted) <= LIMITS[dtype] * scale
    assert np.abs(got - wanted).max(initial=0) <= 30 * LIMITS[dtype] * max(np.abs(wanted).max(initial=0), 1)


SHAPES = [
    ((1, 1), (1, 1)), ((4, 4), (4, 4)), ((1, 1), (1, 10)), ((33, 65), (65, 17)), ((128, 784), (784, 10)),
    ((257, 129), (129, 511)), ((1, 4096), (4096, 333)), ((1000, 3), (3, 1000)), ((64, 70000), (70000, 2)),
    ((3, 0), (0, 4)), ((5, 7, 9), (5, 9, 3)), ((2, 3, 70, 80), (2, 3, 80, 90)), ((8, 100, 120), (120, 130)),
    ((2, 1, 50, 60), (3, 60, 70)), ((300,), (300, 200)), ((200, 300), (300,)), ((5000,), (5000,)),
    ((7, 1, 64), (64, 96)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_product(cuda, shapes, dtype):
    a, left = random(shapes[0], dtype, cuda, 1)
    b, right = random(shapes[1], dtype, cuda, 2)
    out = a @ b
    close(out, left @ right, dtype)
    assert np.array_equal(*(x.to("cpu").double().numpy() for x in (out, a @ b)))


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_integers_wrap(cuda, shapes, dtype):
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 100, shape) for shape in shapes)
    got = (tensor(a, dtype, cuda) @ tensor(b, dtype, cuda)).to("cpu").numpy()
    assert np.array_equal(got, (a @ b).astype(got.dtype))


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16, norch.int32], ids=str)
@pytest.mark.parametrize("size", [5, 150])
def test_layouts(cuda, dtype, size):
    n = size
    a, left = random((3, 2 * n, n + 1), norch.float32, cuda, 4)
    b, right = random((3, n + 1, 2 * n), norch.float32, cuda, 5)
    if dtype is norch.int32:
        a, b = (a * 9).to(dtype), (b * 9).to(dtype)
    else:
        a, b = a.to(dtype), b.to(dtype)
    left, right = (x.to("cpu").to(norch.float64).numpy() for x in (a, b))

    def check(x, y, p, q):
        if dtype is norch.int32:
            assert np.array_equal((x @ y).to("cpu").numpy(), (p @ q).astype(np.int32))
        else:
            close(x @ y, p @ q, dtype)

    check(a[:, ::2], b[:, :, 1::2], left[:, ::2], right[:, :, 1::2])
    check(a[:, :, 1:], b[:, 1:], left[:, :, 1:], right[:, 1:])
    check(b.mT, a.mT, np.swapaxes(right, 1, 2), np.swapaxes(left, 1, 2))
    check(b[0].mT, a.mT, right[0].T, np.swapaxes(left, 1, 2))
    check(a[0, :1].expand(4, n + 1), b[0], np.repeat(left[0, :1], 4, 0), right[0])
    check(a[:, :, :1].expand(3, 2 * n, n + 1), b, np.repeat(left[:, :, :1], n + 1, 2), right)
    check(a.permute(1, 0, 2), b[0], left.transpose(1, 0, 2), right[0])
    check(a[1:, 1:, 1:-1], b[1:, 1:-1, 3:], left[1:, 1:, 1:-1], right[1:, 1:-1, 3:])
    heads = a.reshape(3, n, 2, n + 1).permute(0, 2, 1, 3)
    seen = left.reshape(3, n, 2, n + 1).transpose(0, 2, 1, 3)
    check(heads, heads.mT, seen, np.swapaxes(seen, 2, 3))
    check(heads[:, :1], heads.mT, seen[:, :1], np.swapaxes(seen, 2, 3))


def test_batch_without_a_common_stride(cuda):
    a, left = random((20, 2, 30, 40, 50), norch.float32, cuda, 6)
    check = a[:, :, :, 3:, :].permute(2, 0, 1, 3, 4)
    close(check @ check.mT, (s := left[:, :, :, 3:, :].transpose(2, 0, 1, 3, 4)) @ np.swapaxes(s, 3, 4), norch.float32)


@pytest.mark.parametrize("size", [4, 200])
def test_nan_and_inf(cuda, size):
    a, _ = random((size, size), norch.float32, cuda, 7)
    b, _ = random((size, size), norch.float32, cuda, 8)
    a[1, 2] = float("nan")
    a[2, 1] = float("inf")
    got = (a @ b).to("cpu").numpy()
    assert np.isnan(got[1]).all()
    assert np.isinf(got[2]).all()
    assert np.isfinite(got[3]).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(3, 5, 7), (100, 300, 200), (4096, 64, 64), (300, 1000, 1), (1, 4096, 512)], ids=str)
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu", "tanh", "sigmoid"])
def test_linear(cuda, dtype, shape, activation):
    rows, into, out = shape
    x, v = random((rows, into), dtype, cuda, 9)
    w, u = random((out, into), dtype, cuda, 10)
    b, c = random((out,), dtype, cuda, 11)
    x, v = x * 0.25, v * 0.25
    from math import erf

    from norch.ops.nn.linear import linear

    act = {
        None: lambda z: z,
        "relu": lambda z: np.maximum(z, 0),
        "gelu": lambda z: z * 0.5 * (1 + np.vectorize(erf)(z * np.sqrt(0.5))),
        "silu": lambda z: z / (1 + np.exp(-z)),
        "tanh": np.tanh,
        "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    }[activation]
    limit = max(LIMITS[dtype], 1e-5 if dtype is norch.float32 else 0)
    for bias, shift in ((b, c), (None, 0)):
        got = linear(x, w, bias, activation=activation).to("cpu").to(norch.float64).numpy()
        with np.errstate(over="ignore"):
            wanted = act(v @ u.T + shift)
        assert np.linalg.norm(got - wanted) <= 2 * limit * max(np.linalg.norm(wanted), 1)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float16, norch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "shape",
    [
        (3, 5, 7), (100, 300, 200), (4096, 64, 64), (512, 4096, 1024), (64, 784, 128), (256, 9216, 128), (40, 5000, 16),
        (65, 129, 257), (2000, 2000, 2000), (128, 128, 512), (32, 2048, 64), (10000, 70, 30), (500, 333, 1),
        (8, 512, 4096),
    ],
    ids=str,
)  # fmt: skip
def test_relu_keeps_nan(cuda, dtype, shape):
    from norch.ops.nn.linear import linear

    rows, into, out = shape
    x, _ = random((rows, into), dtype, cuda, 12)
    w, _ = random((out, into), dtype, cuda, 13)
    b, _ = random((out,), dtype, cuda, 14)
    x[1] = float("nan")
    for bias in (b, None):
        got = linear(x, w, bias, activation="relu").to("cpu").float().numpy()
        assert np.isnan(got[1]).all()
        assert (got[2:] >= 0).all()


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=str)
@pytest.mark.parametrize("lead", [(), (64,), (5, 40), (2, 3, 50)], ids=str)
def test_linear_gradients(cuda, dtype, lead):
    from norch.ops.nn.linear import linear_input_grad, linear_weight_grad

    g, h = random((*lead, 70), dtype, cuda, 15)
    x, v = random((*lead, 90), dtype, cuda, 16)
    w, u = random((70, 90), dtype, cuda, 17)
    close(linear_input_grad(g, w), h @ u, dtype)
    close(linear_weight_grad(g, x), h.reshape(-1, 70).T @ v.reshape(-1, 90), dtype)


def test_tf32_is_asked_for(cuda):
    a, left = random((512, 512), norch.float32, cuda, 18)
    exact = left @ left
    assert norch.get_float32_matmul_precision() == "highest"

    def error():
        return np.linalg.norm((a @ a).to("cpu").numpy() - exact) / np.linalg.norm(exact)

    before = error()
    norch.set_float32_matmul_precision("high")
    try:
        if norch.cuda.get_device_capability() >= (8, 0):
            assert 1e-5 < error() < 1e-3
    finally:
        norch.set_float32_matmul_precision("highest")
    assert error() == before < 1e-6
    with pytest.raises(ValueError, match="highest"):
        norch.set_float32_matmul_precision("low")


def test_tf32_of_convolutions_is_a_switch_of_its_own(cuda):
    x, image = random((4, 64, 16, 16), norch.float32, cuda, 18)
    w, weight = random((64, 64, 1, 1), norch.float32, cuda, 19)
    exact = np.einsum("oi,nihw->nohw", weight[:, :, 0, 0], image)

    def errors():
        convolved = norch.conv2d(x, w).cpu().numpy() - exact
        product = (w[:, :, 0, 0] @ x.flatten(2)).cpu().numpy() - exact.reshape(4, 64, -1)
        return [np.linalg.norm(e) / np.linalg.norm(exact) for e in (convolved, product)]

    assert max(before := errors()) < 1e-6
    try:
        norch.backends.cudnn.allow_tf32 = True
        convolved, product = errors()
        assert 1e-5 < convolved < 1e-3
        assert product == before[1]
        norch.set_float32_matmul_precision("high")
        norch.backends.cudnn.allow_tf32 = False
        convolved, product = errors()
        assert convolved < 1e-6 < 1e-5 < product < 1e-3
    finally:
        norch.set_float32_matmul_precision("highest")
        norch.backends.cudnn.fp32_precision = "none"
    assert errors() == before


def test_float16_may_be_summed_in_float16(cuda):
    a, left = random((256, 8192), norch.float16, cuda, 18)
    exact = left @ left.T

    def error():
        return np.linalg.norm((a @ a.T).float().cpu().numpy() - exact) / np.linalg.norm(exact)

    before = error()
    norch.backends.cuda.matmul.allow_fp16_accumulation = True
    try:
        assert 1.5 * before < error() < 0.1
    finally:
        norch.backends.cuda.matmul.allow_fp16_accumulation = False
    norch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
    try:
        assert error() < 3 * before
    finally:
        norch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    assert error() == before


def test_graph(cuda):
    a, left = random((300, 200), norch.float32, cuda, 19)
    b, right = random((200, 100), norch.float32, cuda, 20)
    out = a @ b
    graph = norch.cuda.CUDAGraph()
    with norch.cuda.graph(graph):
        out = a @ b
    a.copy_(a * 2)
    graph.replay()
    close(out, 2 * left @ right, norch.float32)


def test_where_the_library_is_looked_for(monkeypatch):
    """Without a GPU too: the path of a file, or nothing where it is not found."""
    from norch_cuda import libraries

    found = libraries.find("cublasLt")
    assert found == "" or ("cublasLt" in Path(found).name and Path(found).is_file())
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)  # not installed
    assert libraries.find("cublasLt") == ""
