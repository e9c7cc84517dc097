"""Convolutions by cuDNN, in both layouts, against what norch computes on the CPU in float64."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import norch
from norch.ops.nn.convolution import conv2d, conv2d_input_grad, conv2d_weight_grad, conv_transpose2d

LIMITS = {norch.float32: 3e-6, norch.float16: 3e-3, norch.bfloat16: 2e-2}
TF32 = 3e-3

# input, weight, then stride, padding, dilation, groups
CASES = [
    ((2, 16, 13, 13), (20, 16, 3, 3), 1, 1, 1, 1),
    ((3, 3, 12, 11), (10, 3, 3, 5), (2, 1), (1, 2), 1, 1),
    ((5, 16, 10, 9), (33, 16, 3, 3), 2, 0, 2, 1),
    ((2, 64, 7, 7), (136, 64, 1, 1), 1, 0, 1, 1),
    ((2, 64, 7, 7), (24, 64, 1, 1), 2, 0, 1, 1),
    ((2, 16, 9, 9), (16, 1, 3, 3), 1, 1, 1, 16),
    ((2, 32, 8, 8), (48, 16, 3, 3), 1, 1, 1, 2),
    ((2, 8, 1, 30), (6, 8, 1, 5), (1, 3), (0, 2), (1, 2), 1),
    ((4, 8, 3, 3), (8, 8, 3, 3), 1, 0, 1, 1),
    ((2, 1, 9, 8), (1, 1, 3, 3), 1, 0, 1, 1),
    ((4, 3, 12, 12), (16, 3, 3, 3), 1, 1, 1, 1),
    ((2, 16, 1, 90), (24, 16, 1, 7), 1, (0, 27), (1, 9), 1),
    ((2, 16, 12, 13), (8, 16, 3, 2), 1, (1, 4), (2, 3), 1),
    ((3, 3, 20, 18), (16, 3, 7, 7), 1, 3, 1, 1),
    ((9, 4, 33, 31), (20, 4, 3, 3), 2, 1, 1, 1),
    ((8, 3, 40, 33), (12, 3, 7, 7), 2, 3, 1, 1),
]


@pytest.fixture
def cudnn(cuda):
    if not norch.backends.cudnn.is_available():
        pytest.skip("needs cuDNN")
    yield cuda
    norch.backends.cudnn.enabled = norch.backends.cudnn.deterministic = True
    norch.backends.cudnn.benchmark = False
    norch.set_float32_matmul_precision("highest")


def random(shape, dtype, seed):
    return norch.tensor(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def close(got, wanted, limit):
    got, wanted = (x.to("cpu").to(norch.float64).numpy() for x in (got, wanted))
    assert got.shape == wanted.shape
    assert np.linalg.norm(got - wanted) <= limit * max(np.linalg.norm(wanted), 1)


def two(value):
    return value if isinstance(value, tuple) else (value, value)


def results(x, w, b, g, how):
    """Forward with and without bias, and both gradients."""
    stride, padding, dilation, groups = how
    p = two(padding)
    plain = (two(stride), (p[0], p[0], p[1], p[1]), two(dilation), groups)
    return (
        conv2d(x, w, b, *how),
        conv2d(x, w, None, *how),
        conv2d_input_grad(g, w, tuple(x.shape), *plain),
        conv2d_weight_grad(g, x, tuple(w.shape), *plain),
    )


@pytest.mark.parametrize("form", ["contiguous_format", "channels_last"])
@pytest.mark.parametrize("dtype", [*LIMITS, "tf32"], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution(cudnn, case, dtype, form):
    shape, weight_shape, *how = case
    limit = LIMITS.get(dtype, TF32)
    if dtype == "tf32":
        dtype = norch.float32
        norch.set_float32_matmul_precision("high")
    x, w, b = random(shape, dtype, 1), random(weight_shape, dtype, 2), random(weight_shape[:1], dtype, 3)
    wide = [t.to(norch.float64) for t in (x, w, b)]
    g = random(conv2d(*wide[:2], None, *how).shape, dtype, 4)
    wanted = results(*wide, g.to(norch.float64), how)
    there = [t.to(cudnn).contiguous(memory_format=getattr(norch, form)) for t in (x, w, g)]
    found = results(*there[:2], b.to(cudnn), there[2], how)
    for got, exact in zip(found, wanted, strict=True):
        close(got, exact, limit)
        assert got.is_contiguous(memory_format=getattr(norch, form))
    for got, same in zip(found, results(*there[:2], b.to(cudnn), there[2], how), strict=True):
        assert np.array_equal(*(t.to("cpu").double().numpy() for t in (got, same)))


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=str)
def test_signals_of_one_channel(cudnn, dtype):
    """Which lie both ways."""
    how = (1, (0, 2), 1, 1)
    x, w, b = (random(s, dtype, 11) for s in ((2, 1, 1, 70), (16, 1, 1, 5), (16,)))
    g = random((2, 16, 1, 70), dtype, 12)
    wanted = results(*(t.double() for t in (x, w, b, g)), how)
    for got, exact in zip(results(*(t.to(cudnn) for t in (x, w, b, g)), how), wanted, strict=True):
        close(got, exact, LIMITS[dtype])


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=str)
def test_other_layouts(cudnn, dtype):
    """Operands with gaps, broadcast, of different layouts, and at odd addresses are copied first."""
    x, w = random((4, 16, 10, 12), dtype, 5), random((24, 16, 3, 3), dtype, 6)
    wanted = conv2d(x.double()[:, :, :, 1:9], w.double())
    there, weight = x.to(cudnn), w.to(cudnn)
    last = there.contiguous(memory_format=norch.channels_last)
    for seen in (there[:, :, :, 1:9], last[:, :, :, 1:9]):
        close(conv2d(seen, weight), wanted, LIMITS[dtype])
    close(conv2d(last, weight)[:, :, :, 1:7], conv2d(x.double(), w.double())[:, :, :, 1:7], LIMITS[dtype])
    one = norch.ones((), dtype=dtype, device=cudnn).expand(4, 24, 8, 10)
    how = ((1, 1), (0, 0, 0, 0), (1, 1), 1)
    got = conv2d_input_grad(one, weight, tuple(x.shape), *how)
    close(got, conv2d_input_grad(one.to("cpu").double(), w.double(), tuple(x.shape), *how), LIMITS[dtype])
    flat = norch.zeros(x.numel() + 1, dtype=dtype, device=cudnn)
    odd = flat[1:].reshape(x.shape)
    odd.copy_(there)
    close(conv2d(odd, weight), conv2d(x.double(), w.double()), LIMITS[dtype])


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("dtype", [norch.float32, norch.float16], ids=str)
def test_transposed(cudnn, dtype, extra):
    x, w, b = (random(s, dtype, 9) for s in ((2, 8, 5, 7), (8, 4, 3, 3), (8,)))
    how = (2, 1, extra, 2)
    wanted = conv_transpose2d(*(t.double() for t in (x, w, b)), *how)
    for form in (norch.contiguous_format, norch.channels_last):
        there = [t.to(cudnn).contiguous(memory_format=form) for t in (x, w)]
        close(conv_transpose2d(*there, b.to(cudnn), *how), wanted, LIMITS[dtype])


@pytest.mark.parametrize("form", ["contiguous_format", "channels_last_3d"])
@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=str)
@pytest.mark.parametrize("how", [(1, 1, 1, 1), ((2, 1, 2), (1, 0, 1), 1, 2), (1, (2, 1, 0), (2, 1, 3), 1)], ids=str)
def test_volumes(cudnn, how, dtype, form):
    groups = how[3]
    shape, weight_shape = (2, 16, 6, 7, 8), (24, 16 // groups, 3, 3, 3)
    x, w, b = random(shape, dtype, 13), random(weight_shape, dtype, 14), random(weight_shape[:1], dtype, 15)

    def of(x, w, b, g):
        x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
        y = norch.conv3d(x, w, b, *how)
        y.backward(g)
        back = norch.conv_transpose3d(g, w.detach(), None, how[0], how[1], 0, groups, how[2])
        return y.detach(), x.grad, w.grad, b.grad, back

    g = random(norch.conv3d(x.double(), w.double(), None, *how).shape, dtype, 16)
    wanted = of(*(t.double() for t in (x, w, b, g)))
    there = [t.to(cudnn).contiguous(memory_format=getattr(norch, form)) for t in (x, w, g)]
    for got, exact in zip(of(*there[:2], b.to(cudnn), there[2]), wanted, strict=True):
        close(got, exact, LIMITS[dtype] * 2)


def gradients(x, w, how):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = norch.nn.functional.conv2d(x, w, None, *how)
    (y * y).sum().backward()
    return y.detach(), x.grad, w.grad


@pytest.mark.parametrize("switch", ["enabled", "deterministic", "benchmark"])
def test_switches(cudnn, switch):
    x, w = random((8, 32, 12, 12), norch.float32, 10), random((64, 32, 3, 3), norch.float32, 11)
    wanted = gradients(x.double(), w.double(), (1, 1))
    setattr(norch.backends.cudnn, switch, not getattr(norch.backends.cudnn, switch))
    for form in (norch.contiguous_format, norch.channels_last):
        there = [t.to(cudnn).contiguous(memory_format=form) for t in (x, w)]
        for got, exact in zip(gradients(*there, (1, 1)), wanted, strict=True):
            close(got, exact, 1e-5)


def test_in_a_recorded_graph(cudnn):
    x, w = (random(s, norch.bfloat16, 12).to(cudnn) for s in ((8, 32, 12, 12), (64, 32, 3, 3)))
    x, w = (t.contiguous(memory_format=norch.channels_last) for t in (x, w))
    conv2d(x, w)
    graph = norch.cuda.CUDAGraph()
    with norch.cuda.graph(graph):
        out = conv2d(x, w)
    x.copy_(x * 2)
    graph.replay()
    close(out, conv2d(x, w), 1e-6)


def test_in_a_captured_step(cudnn):
    """Of other tensors each time, whose addresses the recorded convolutions are given."""
    net = norch.nn.Sequential(
        norch.nn.Conv2d(3, 16, 3, padding=1), norch.nn.BatchNorm2d(16), norch.nn.ReLU(),
        norch.nn.Conv2d(16, 32, 3, stride=2), norch.nn.Flatten(), norch.nn.Linear(32 * 7 * 7, 10),
    ).to(cudnn, memory_format=norch.channels_last)  # fmt: skip

    def step(x):
        net.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        return loss.detach(), *[p.grad.clone() for p in net.parameters()]

    captured = norch.capture(step)
    for seed in range(5):
        x = random((4, 3, 16, 16), norch.float32, seed).to(cudnn).contiguous(memory_format=norch.channels_last)
        for got, wanted in zip(captured(x), step(x), strict=True):
            close(got, wanted, 1e-6)


def test_what_it_is_called(cudnn):
    version = norch.backends.cudnn.version()
    assert version >= 90000
    assert norch.cuda.versions()["cudnn"].startswith(f"{version // 10000}.")
    assert "cuDNN 9." in norch.cuda.uses()


def test_where_the_library_is_looked_for(monkeypatch, tmp_path):
    """Without a GPU too: in NVIDIA's wheel where cuda-pathfinder does not know of it."""
    from norch_cuda import libraries

    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)  # not installed
    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    assert libraries.find("cudnn") == ""
    place = tmp_path / "cudnn/lib/libcudnn.so.9"
    place.parent.mkdir(parents=True)
    place.touch()
    wheels = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(libraries, "find_spec", lambda name: wheels)
    assert libraries.find("cudnn") == str(place)
    assert libraries.find("nccl") == ""
