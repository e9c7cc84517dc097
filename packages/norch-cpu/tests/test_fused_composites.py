"""Elementwise composites without kernels of their own, and weighted sums, have the bits that their parts give."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.dispatch.kernels import BoundKernel
from norch.ops.families import by_name

DTYPES = [norch.float32, norch.float64, norch.float16, norch.bfloat16]
ONE, TWO, THREE = ["x"], ["x", "row"], ["x", "row", "column"]
ARGUMENTS = {
    **dict.fromkeys(("mish", "softsign", "logsigmoid", "entr", "sinc", "rsqrt"), ONE),
    **dict.fromkeys(("xlogy", "xlog1py", "hypot", "logaddexp", "logaddexp2", "prelu", "binary_cross_entropy"), TWO),
    **dict.fromkeys(("mish_grad", "prelu_weight_grad", "sinc_grad", "gated"), TWO),
    **dict.fromkeys(("atan2_grad", "prelu_grad", "l1_loss_grad", "lerp_by_tensor", "clamp_between"), THREE),
    **dict.fromkeys(("binary_cross_entropy_grad", "binary_cross_entropy_with_logits_grad"), THREE),
    "kl_div_grad": [*TWO, True],
    "gamma_proposal": THREE,
    "clipped_difference_grad": [*THREE, 0.3],
    "lerp": [*TWO, 0.3, 0.7, True],
    "addcmul": [*THREE, -0.7],
    "addcdiv": [*THREE, -0.7],
    "logit": ["x", 0.1],
    "hardshrink": ["x", 0.7],
    "hardshrink_grad": [*TWO, 0.7],
    "softshrink": ["x", 0.7],
    "softshrink_grad": [*TWO, 0.7],
    "softsign_grad": TWO,
    "logsigmoid_grad": TWO,
    "exponential_of_uniform": ["x", 0.1, 0.7],
    "l1_loss": ["x", "y", "none"],
    "huber_loss": ["x", "y", "none", 0.3],
    "smooth_l1_loss": ["x", "y", "none", 0.3],
    "binary_cross_entropy_with_logits": ["x", "y", "row"],
    "kl_div": ["x", "y", False],
}  # fmt: skip


def operands(dtype: norch.DType) -> dict[str, norch.Tensor]:
    draw = np.random.default_rng(3).uniform
    made = {
        name: draw(-4, 4, shape) for name, shape in (("x", (37, 65)), ("y", (37, 65)), ("row", 65), ("column", (37, 1)))
    }
    return {name: norch.tensor(values).to(dtype) for name, values in made.items()}


OWN_KERNELS = {"addcdiv", "addcmul", "lerp", "lerp_by_tensor", "prelu"}
"""These round as their parts do all the same."""

ONLY_IN = {"hypot": [norch.float64], "sinc_grad": [norch.float32, norch.float64]}
"""`hypot` has a kernel of its own for the others; in 16 bits `sinc_grad` is more steps than a program has."""

CASES = [(name, dtype) for name in sorted(ARGUMENTS) for dtype in ONLY_IN.get(name, DTYPES)]


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_one_kernel_gives_the_bits_of_the_parts(name: str, dtype: norch.DType) -> None:
    op, given = by_name()[name], operands(dtype)
    args = [given[a] if type(a) is str and a in given else a for a in ARGUMENTS[name]]
    with norch.no_grad():
        found = op.call(*args)
        parts = op.decompose(*args)
    key = [a.spec if isinstance(a, norch.Tensor) else float if i in op.slots else a for i, a in enumerate(args)]
    plan = op.plans[tuple(key) if len(key) > 1 else key[0]]
    assert (type(plan.kernel) is BoundKernel) == (name not in OWN_KERNELS)
    several = found if isinstance(found, tuple) else (found,)
    for one, other in zip(several, parts if isinstance(parts, tuple) else (parts,), strict=True):
        assert one.dtype is other.dtype is dtype
        np.testing.assert_array_equal(one.double().numpy(), other.double().numpy())


def test_every_elementwise_composite_is_tried() -> None:
    elementwise = {name for name, op in by_name().items() if op.is_elementwise}
    own = "elu gelu hardsigmoid hardswish hardtanh leaky_relu mse_loss relu silu softplus threshold".split()
    without_gradient = "exp2 frac nan_to_num sigmoid_grad tanh_grad".split()
    kernels = {*own, *[f"{name}_grad" for name in own], *without_gradient}
    assert elementwise - set(ARGUMENTS) == kernels


@pytest.mark.parametrize("second", ["float16", "bfloat16", "bool"])
def test_operands_of_several_dtypes_give_the_bits_of_converted_ones(second):
    a, b = norch.randn(7, 40, 33), norch.randn(7, 40, 33)
    b = b > 0 if second == "bool" else b.to(getattr(norch, second))
    for x, y in ((a, b), (b, a), (a[1:, ::2], b[1:, ::2]), (a, b[:1]), (a[:, :1], b), (a.mT, b.mT)):
        both = x.float(), y.float()
        for name in ("mul", "add", "maximum", "lt", "eq", "where"):
            first = (x > 0,) if name == "where" else ()
            found, wanted = (getattr(norch, name)(*first, *pair) for pair in ((x, y), both))
            assert found.dtype is wanted.dtype
            assert (found == wanted).all()
    a += b
    assert a.dtype is norch.float32
