"""What nodes have saved, by PyTorch's names, and Functions of which there is just a `jvp`."""

from __future__ import annotations

from typing import Any

import pytest

import norch
from norch.autograd.graph import saved_tensors_hooks


def leaf(*values: float) -> Any:
    return norch.tensor(values, dtype=norch.float64, requires_grad=True)


def test_operands_and_results_by_their_names() -> None:
    a, b = leaf(1, 2), leaf(3, 4)
    product: Any = (a * b).grad_fn
    assert product._saved_self is a
    assert product._saved_other is b
    y: Any = a.exp()
    assert y.grad_fn._saved_result.tolist() == y.tolist()
    assert not hasattr(y.grad_fn, "_saved_self")
    power: Any = a.pow(2).grad_fn
    assert (power._saved_self is a, power._saved_exponent) == (True, 2)
    assert not hasattr(power, "_saved_other")
    matrix = norch.ones(2, 3, requires_grad=True)
    assert (matrix @ matrix.T).grad_fn._saved_mat2.shape == (3, 2)  # type: ignore[union-attr]
    assert matrix.softmax(1).grad_fn._saved_dim == 1  # type: ignore[union-attr]
    assert matrix.flatten().grad_fn._saved_self_sym_sizes == (2, 3)  # type: ignore[union-attr]
    assert matrix.aminmax(dim=1)[0].grad_fn is not None
    with pytest.raises(AttributeError, match="_saved_other"):
        (a + 1).grad_fn._saved_other  # type: ignore[union-attr]
    with pytest.raises(AttributeError, match="nothing"):
        product.nothing


def test_names_are_listed() -> None:
    a = leaf(1, 2)
    assert [n for n in dir((a * a).grad_fn) if n.startswith("_saved")] == [
        "_saved_other",
        "_saved_self",
        "_saved_self_sym_sizes",
    ]
    assert not [n for n in dir(norch.autograd.graph.get_gradient_edge(a).node) if n.startswith("_saved")]


def test_attributes_of_nodes_are_found_as_those_of_any_object() -> None:
    assert not hasattr(norch.autograd.graph.Node, "__getattr__")  # each of theirs would take longer


def test_what_is_freed_or_changed_raises() -> None:
    a = leaf(1, 2)
    y = a * a
    y.sum().backward()
    with pytest.raises(norch.AutogradError, match="retain_graph"):
        y.grad_fn._saved_self  # type: ignore[union-attr]
    x = a * 1
    y = x * x
    x.add_(1)
    with pytest.raises(norch.AutogradError, match="changed it in place"):
        y.grad_fn._saved_self  # type: ignore[union-attr]


def test_what_hooks_have_packed_is_unpacked() -> None:
    calls: list[str] = []

    def pack(tensor: norch.Tensor) -> Any:
        calls.append("pack")
        return tensor.tolist()

    def unpack(packed: Any) -> norch.Tensor:
        calls.append("unpack")
        return norch.tensor(packed, dtype=norch.float64)

    with saved_tensors_hooks(pack, unpack):
        y: Any = leaf(1, 2) ** 2
    assert y.grad_fn._saved_self.tolist() == [1, 2]
    assert calls == ["pack", "unpack"]


class Exponential(norch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.result = norch.exp(x) * scale
        return ctx.result

    @staticmethod
    def jvp(ctx: Any, x: Any, scale: Any) -> Any:
        out = x * ctx.result
        del ctx.result
        return out


def test_a_function_with_just_a_jvp_has_gradients() -> None:
    x = leaf(0, 1)
    y = Exponential.apply(x, 2.0)
    (y * norch.tensor([1.0, 3.0], dtype=norch.float64)).sum().backward(retain_graph=True)
    assert x.grad is not None
    assert x.grad.tolist() == pytest.approx([2, 6 * 2.718281828459045])
    first: Any = norch.autograd.grad(y.sum(), x, create_graph=True)[0]
    assert first.tolist() == y.tolist()
    made: tuple[Any, Any] = norch.func.jvp(lambda x: Exponential.apply(x, 2.0), (x.detach(),), (norch.ones_like(x),))
    assert made[1].tolist() == made[0].tolist()


class Neither(norch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2


def test_a_function_with_neither_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="backward"):
        Neither.apply(leaf(1)).sum().backward()
