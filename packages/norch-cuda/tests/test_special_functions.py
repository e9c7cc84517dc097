"""Functions of their own kernels, and elementwise composites that run as one fused kernel, against the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.ops.families import by_name

RNG = np.random.default_rng(5)
UNARY = ["lgamma", "digamma", "erfc", "erfinv"]
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 2.0, -1.0, -2.0, -3.5, -100.5, 1e-30, 1e-5, 9.999, 10.0, 26.0, 3e4]
ONE, TWO, THREE = ["x"], ["x", "row"], ["x", "row", "column"]


def numbers(name, shape, dtype):
    spread = RNG.uniform(-1, 1, shape) if name == "erfinv" else RNG.standard_normal(shape) * 6
    spread.reshape(-1)[: len(EDGES)] = EDGES[: spread.size]
    return norch.tensor(spread).to(getattr(norch, dtype))


def near(got, exact, dtype):
    got, exact = got.detach().to("cpu").double().numpy(), exact.numpy()
    unit = {"float64": 2e-13, "float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    largest = {"float64": 1.8e308, "float32": 3.4e38, "float16": 65504.0, "bfloat16": 3.38e38}[dtype]
    exact = np.where(np.abs(exact) > largest, np.copysign(np.inf, exact), exact)
    np.testing.assert_allclose(got, exact, rtol=unit, atol=unit / 10)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", UNARY)
def test_functions(cuda, name, dtype):
    for shape in ((0,), (1,), (37, 65), (70001,)):
        x = numbers(name, shape, dtype)
        exact = getattr(norch, name)(x.double())
        near(getattr(norch, name)(x.to(cuda)), exact, dtype)
    x = numbers(name, (65, 37), dtype)
    near(getattr(norch, name)(x.to(cuda).T), getattr(norch, name)(x.T.double()), dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_lgamma_between_the_poles_and_its_derivatives(cuda, dtype):
    x = norch.tensor(RNG.uniform(-12, 12, 20001)).to(getattr(norch, dtype))
    exact = norch.lgamma(x.double()).numpy()
    got = norch.lgamma(x.to(cuda)).to("cpu").double().numpy()
    np.testing.assert_allclose(got, exact, rtol=2e-6 if dtype == "float32" else 1e-12, atol=1e-13)
    for n in (0, 1):
        exact = norch.polygamma(n, x.double()).numpy()
        got = norch.polygamma(n, x.to(cuda)).to("cpu").double().numpy()
        np.testing.assert_allclose(got, exact, rtol=1e-6 if dtype == "float32" else 2e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["i0", "i1", "i0e", "i1e"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_modified_bessel_functions(cuda, name, dtype):
    x = norch.tensor([*EDGES, *RNG.standard_normal(10001) * 15, 25.0, 25.5, -80.0, 700.0]).to(getattr(norch, dtype))
    function = getattr(norch.special, name)
    exact, got = x.double(), x.to(cuda)
    exact.requires_grad = got.requires_grad = True
    near(function(got), function(exact).detach(), dtype)
    if dtype != "bfloat16":
        function(got).sum().backward()
        function(exact).sum().backward()
        ours, theirs = got.grad.to("cpu").double().numpy(), exact.grad.numpy()
        fits = np.abs(theirs) < 1e37
        np.testing.assert_allclose(ours[fits], theirs[fits], rtol=1e-5 if dtype == "float32" else 1e-10, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8"])
def test_fmod(cuda, dtype):
    kind = getattr(norch, dtype)
    values = RNG.integers(0 if dtype == "uint8" else -100, 100, (37, 65)) + (0.25 if "float" in dtype else 0)
    divisor = np.where((d := RNG.integers(1, 9, 65)) == 0, 3, d)
    x, d = norch.tensor(values).to(kind), norch.tensor(divisor).to(kind)
    got = norch.fmod(x.to(cuda), d.to(cuda)).to("cpu").double().numpy()
    np.testing.assert_array_equal(got, np.fmod(x.double().numpy(), d.double().numpy()))
    if "float" in dtype:
        edges = norch.tensor([0.0, -0.0, np.inf, -np.inf, np.nan, 5.0, -5.0, 1.0]).to(kind)
        with np.errstate(invalid="ignore"):
            wanted = np.fmod(edges.double().numpy()[:, None], edges.double().numpy()[None])
        got = norch.fmod(edges.to(cuda)[:, None], edges.to(cuda)[None]).to("cpu").double().numpy()
        np.testing.assert_array_equal(got, wanted)
        np.testing.assert_array_equal(np.signbit(got[wanted == 0]), np.signbit(wanted[wanted == 0]))


@pytest.mark.parametrize("name", ["hardsigmoid", "hardswish"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_hard_activations(cuda, name, dtype):
    x = norch.tensor([*np.linspace(-4, 4, 257), -3.0, 3.0, np.nan]).to(getattr(norch, dtype))
    exact, near_one = x.double(), x.to(cuda)
    exact.requires_grad = near_one.requires_grad = True
    function = by_name()[name].call
    found, wanted = function(near_one), function(exact)
    near(found, wanted.detach(), dtype)
    found.sum().backward()
    wanted.sum().backward()
    near(near_one.grad, exact.grad, dtype)


FUSED = {
    **dict.fromkeys(("mish", "softsign", "logsigmoid", "entr", "sinc", "rsqrt"), ONE),
    **dict.fromkeys(("xlogy", "hypot", "logaddexp", "prelu", "binary_cross_entropy", "mish_grad"), TWO),
    **dict.fromkeys(("prelu_grad", "l1_loss_grad", "lerp_by_tensor", "clamp_between"), THREE),
    "addcmul": ["x", "row", "column", -0.7],
    "addcdiv": ["x", "row", "column", -0.7],
    "lerp": ["x", "row", 0.3, 0.7, True],
    "huber_loss": ["x", "y", "none", 0.3],
    "smooth_l1_loss": ["x", "y", "none", 0.3],
    "binary_cross_entropy_with_logits": ["x", "y", "row"],
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", sorted(FUSED))
def test_one_kernel_gives_the_bits_of_the_parts(cuda, name, dtype):
    op = by_name()[name]
    for rows in (37, 1 << 14):
        shapes = {"x": (rows, 72), "y": (rows, 72), "row": (72,), "column": (rows, 1)}
        made = {
            key: norch.tensor(RNG.uniform(-4, 4, shape)).to(getattr(norch, dtype)).to(cuda)
            for key, shape in shapes.items()
        }
        args = [made[a] if type(a) is str and a in made else a for a in FUSED[name]]
        with norch.no_grad():
            found, parts = op.call(*args), op.decompose(*args)
        assert found.dtype is parts.dtype
        np.testing.assert_array_equal(found.double().to("cpu").numpy(), parts.double().to("cpu").numpy())


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64"])
def test_cross(cuda, dtype):
    kind = getattr(norch, dtype)
    for one, other, dim in [
        ((3,), (3,), 0),
        ((1000, 3), (1000, 3), 1),
        ((3, 1000), (3, 1000), 0),
        ((65, 3, 7), (3, 1), -2),
    ]:
        a, b = (norch.tensor(np.round(RNG.standard_normal(s) * 9)).to(kind) for s in (one, other))
        x, y = a.to(cuda), b.to(cuda)
        if dtype != "int64":
            x.requires_grad = y.requires_grad = True
        got = norch.cross(x, y, dim)
        wanted = norch.cross(a.double(), b.double(), dim)
        np.testing.assert_array_equal(
            got.detach().to("cpu").double().numpy(), wanted.detach().to(kind).double().numpy()
        )
        if dtype in ("int64", "float16", "bfloat16"):
            continue
        g = norch.tensor(np.round(RNG.standard_normal(tuple(got.shape)) * 9)).to(kind)
        got.backward(g.to(cuda))
        pair = [v.detach().double().clone() for v in (a, b)]
        for v in pair:
            v.requires_grad = True
        norch.cross(*pair, dim).backward(g.double())
        for v, w in zip((x, y), pair, strict=True):
            np.testing.assert_array_equal(v.grad.to("cpu").double().numpy(), w.grad.numpy())
    big = norch.tensor(RNG.standard_normal((100, 3)) * 50, device=cuda).to(kind)
    np.testing.assert_array_equal(norch.cross(big, big, 1).to("cpu").double().numpy(), np.zeros((100, 3)))
