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
