"""Ops that are Python functions: `norch.library`."""

from __future__ import annotations

import pytest

import norch
from norch import library


def test_a_decorated_function_is_an_op_by_name() -> None:
    @library.custom_op("tested::scaled", mutates_args=())
    def scaled(x: norch.Tensor, factor: float = 2.0) -> norch.Tensor:
        """x times factor."""
        return x * factor

    assert norch.ops.tested.scaled is scaled
    assert scaled.__doc__ == "x times factor."
    assert norch.ops.tested.scaled(norch.ones(2), factor=3.0).tolist() == [3, 3]
    assert not scaled(norch.ones(2, requires_grad=True)).requires_grad


def test_gradients_by_name() -> None:
    library.custom_op("powers::cube", lambda x, k: k * x**3, schema="(Tensor x, int k) -> Tensor")
    library.register_fake("powers::cube", lambda x, k: norch.empty_like(x))
    library.register_autograd(
        "powers::cube",
        lambda ctx, g: (3 * ctx.k * ctx.saved_tensors[0] ** 2 * g, None),
        setup_context=lambda ctx, inputs, output: (ctx.save_for_backward(inputs[0]), setattr(ctx, "k", inputs[1])),
    )
    x = norch.tensor([2.0, 3.0], requires_grad=True)
    norch.ops.powers.cube(x, k=2).sum().backward()
    assert x.grad.tolist() == [24, 54]


def test_a_kernel_for_a_device() -> None:
    op = library.custom_op("places::where", lambda x: x, device_types="cuda")
    with pytest.raises(NotImplementedError, match="places::where: no kernel for device 'cpu'; register_kernel"):
        op(norch.ones(1))
    op.register_kernel("cpu")(lambda x: x + 1)
    assert op(norch.ones(1)).tolist() == [2]


def test_wrong_names() -> None:
    with pytest.raises(ValueError, match="expected 'namespace::name', got 'alone'"):
        library.custom_op("alone", lambda x: x)
    with pytest.raises(RuntimeError, match="there is no op 'nowhere::none'; custom_op makes one"):
        library.register_autograd("nowhere::none", lambda ctx, g: g)
    assert not hasattr(norch.ops, "nowhere")


def test_a_library_defines_and_implements() -> None:
    mine = library.Library("shop", "DEF")
    assert mine.define("weigh(Tensor x, float[] by=[1.0, 2.0], *, bool double=False) -> Tensor") == "weigh"
    with pytest.raises(NotImplementedError, match="shop::weigh: no kernel"):
        norch.ops.shop.weigh(norch.ones(2))
    mine.impl("weigh", lambda x, by, double=False: x * by[1] * (2 if double else 1), "CPU")
    mine.impl(norch.ops.shop.weigh.default, lambda x, by, double=False: x, "Meta")
    assert norch.ops.shop.weigh(norch.ones(2), double=True).tolist() == [4, 4]
    mine.define("twice(Tensor x) -> Tensor")
    mine.impl("twice", lambda x: x + x)
    x = norch.ones(2, requires_grad=True)
    norch.ops.shop.twice(x).sum().backward()
    assert x.grad.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="there is no op 'shop::none'"):
        mine.impl("none", len)
    with pytest.raises(ValueError, match="expected 'name"):
        mine.define("nothing")
    with pytest.raises(ValueError, match="kind must be"):
        library.Library("shop", "ALL")


def test_define_and_impl_by_name() -> None:
    library.define("counts::third", "(Tensor x, int? n=None) -> Tensor")

    @library.impl("counts::third", "default")
    def third(x: norch.Tensor, n: int | None) -> norch.Tensor:
        return x / 3 if n is None else x / n

    assert norch.ops.counts.third(norch.ones(1) * 3, n=None).tolist() == [1]
    mine = library.Library("counts", "FRAGMENT")
    mine.define("fourth(Tensor x) -> Tensor")

    @library.impl(mine, "fourth", "CompositeExplicitAutograd")
    def fourth(x: norch.Tensor) -> norch.Tensor:
        return x / 4

    assert norch.ops.counts.fourth(norch.ones(1)).tolist() == [0.25]
    assert fourth(norch.ones(1)).tolist() == [0.25]
