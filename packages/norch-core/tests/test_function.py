"""Custom differentiable functions."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

import norch
from norch import AutogradError
from norch.autograd import Function
from norch.autograd.function import once_differentiable
from norch.testing.gradcheck import gradgradcheck

Tensor = norch.Tensor


def leaf(*values: float) -> Tensor:
    return norch.tensor(values, dtype=norch.float64, requires_grad=True)


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        assert not norch.is_grad_enabled()
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


class Split(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> tuple[Tensor, Tensor, Tensor]:
        ctx.factor = factor
        signs = x.sign()
        ctx.mark_non_differentiable(signs)
        return x * factor, x + 1, signs

    @staticmethod
    def backward(ctx: Any, a: Tensor, b: Tensor, signs: Tensor) -> tuple[Tensor, None]:
        assert ctx.needs_input_grad == (True, False)
        return a * ctx.factor + b, None


class Result(Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.saved_tensors[0]


def test_function() -> None:
    x = leaf(1, 2)
    y = Cube.apply(x)
    assert y.grad_fn.name() == "Cube_backward"
    y.sum().backward()
    assert x.grad.tolist() == [3, 12]
    assert norch.autograd.gradcheck(Cube.apply, (leaf(0.5, -1),))
    assert norch.autograd.gradgradcheck(Cube.apply, (leaf(0.5, -1),))
    assert norch.autograd.gradcheck(Result.apply, (leaf(0.5, -1),))
    assert not Cube.apply(x.detach()).requires_grad


def test_function_with_several_results() -> None:
    x = leaf(1, -2)
    a, b, signs = Split.apply(x, 3.0)
    assert not signs.requires_grad
    (a * 2 + b).sum().backward()
    assert x.grad.tolist() == [7, 7]
    x.grad = None
    Split.apply(x, 3.0)[1].sum().backward()  # what is not used comes as zeros
    assert x.grad.tolist() == [1, 1]


class WithOthers(Function):
    """Results of which some are no tensors: `backward` has a place for each."""

    @staticmethod
    def forward(ctx, x):
        return "a name", x * 2, None, x * 3, 5

    @staticmethod
    def backward(ctx, *grads):
        assert [g is None for g in grads] == [True, False, True, False, True]
        return grads[1] * 2 + grads[3] * 3


class WithCount(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x.numel()

    @staticmethod
    def backward(ctx, grad, of_count):
        assert of_count is None
        return grad * 2


def test_results_that_are_no_tensors_have_a_place_among_the_gradients() -> None:
    x = norch.tensor([1.0, 2.0], requires_grad=True)
    name, a, nothing, b, number = WithOthers.apply(x)
    assert (name, nothing, number) == ("a name", None, 5)
    (a.sum() + (b * norch.tensor([1.0, 10.0])).sum()).backward()
    assert x.grad.tolist() == [2 + 3, 2 + 30]
    x.grad = None
    doubled, count = WithCount.apply(x)
    assert count == 2
    doubled.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_function_checks_what_it_saved() -> None:
    x = leaf(1, 2)
    y = x * 1
    z = Cube.apply(y)
    y.add_(1)
    with pytest.raises(AutogradError, match=r"Cube saved a tensor of shape \(2,\), which add_ has changed"):
        z.sum().backward()
    z = Cube.apply(x)
    z.sum().backward()
    with pytest.raises(AutogradError, match="Cube"):
        z.sum().backward()


def test_function_with_too_few_gradients() -> None:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            return x + y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g

    with pytest.raises(AutogradError, match=r"Wrong.backward returned 1 gradients for 2 arguments"):
        Wrong.apply(leaf(1), leaf(2)).sum().backward()
    Wrong.backward = staticmethod(lambda ctx, g: (g, g, g))  # type: ignore[method-assign, assignment]
    with pytest.raises(AutogradError, match=r"Wrong.backward returned 3 gradients for 2 arguments"):
        Wrong.apply(leaf(1), leaf(2)).sum().backward()


class Halve(Function):
    """Changes its input in place and returns it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(0.5)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 0.5


def test_function_that_changes_its_input() -> None:
    x = leaf(1, 2)
    y = x * 4
    z = Halve.apply(y)
    assert z is y
    assert y.tolist() == [2, 4]
    assert y.grad_fn.name() == "Halve_backward"
    (y * y).sum().backward()
    assert x.grad.tolist() == [8, 16]


def test_function_that_changes_a_view() -> None:
    x = leaf(1, 2, 3)
    y = x * 4
    other = y[1:]
    z = Halve.apply(y[:2])
    assert y.tolist() == [2, 4, 12]
    assert z.grad_fn.name() == other.grad_fn.name() == "as_strided_backward"
    (y.sum() + other.sum()).backward()
    assert x.grad.tolist() == [2, 4, 8]
    base = norch.zeros(2)
    Halve.apply(base)
    assert not base.requires_grad
    for changed in (leaf(1, 2), leaf(1, 2)[:1]):
        with pytest.raises(AutogradError, match="a leaf that requires grad, or a view of one"):
            Halve.apply(changed)


class Same(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 7


def test_function_that_returns_its_input() -> None:
    x = leaf(1, 2)
    y = Same.apply(x)
    assert y is not x
    assert y.data_ptr() == x.data_ptr()
    y.sum().backward()
    assert x.is_leaf
    assert x.grad.tolist() == [7, 7]


def test_function_that_takes_none_for_what_is_not_used() -> None:
    seen: list[Any] = []

    class Two(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, a: Tensor | None, b: Tensor | None) -> Tensor:
            seen.append((a is None, b is None))
            return a * 2 if a is not None else b * 3

    x = leaf(1, 2)
    Two.apply(x)[0].sum().backward()
    Two.apply(x)[1].sum().backward()
    assert seen == [(False, True), (True, False)]
    assert x.grad.tolist() == [5, 5]


def test_gradients_of_a_function_are_summed_and_cast_to_their_operands() -> None:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, factor: Tensor, power: int) -> Tensor:
            ctx.save_for_backward(x, None, factor)
            return x * factor**power

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
            x, nothing, factor = ctx.saved_tensors
            assert nothing is None
            return g * factor, g * x, None, None  # one more None than there are arguments, as PyTorch allows

    x, factor = leaf(1, 2, 3), norch.tensor(2.0, requires_grad=True)
    Scale.apply(x, factor, 1).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert factor.grad.dtype is norch.float32
    assert factor.grad.item() == 6


def test_leaves_have_their_gradient_before_the_op_before_runs_backward() -> None:
    """Whoever knows that the ops of a block are through (fully_shard does) may take its parameters' gradients."""
    x, w, seen = leaf(1, 2), leaf(3, 4), []

    class Product(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            a, b = ctx.saved_tensors
            return g * b, g * a

    class Before(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor) -> Tensor:
            return a.clone()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            seen.append(None if w.grad is None else w.grad.tolist())
            return g

    Product.apply(Before.apply(x), w).sum().backward()
    assert seen == [[1, 2]]
    assert x.grad.tolist() == [3, 4]


def test_once_differentiable() -> None:
    class Cube(norch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: norch.Tensor, y: norch.Tensor) -> norch.Tensor:
            ctx.save_for_backward(x)
            return x**3 + y

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: norch.Tensor) -> Any:
            assert not norch.is_grad_enabled()
            return grad * 3 * ctx.saved_tensors[0] ** 2, grad

    x, y = norch.tensor(2.0, requires_grad=True), norch.tensor(1.0, requires_grad=True)
    (x**2 * Cube.apply(x, y)).backward()
    assert x.grad.item() == 4 * 9 + 4 * 12
    (first,) = norch.autograd.grad(x**2 * Cube.apply(x, y), x, create_graph=True)
    assert first.item() == 84
    with pytest.raises(AutogradError, match="differentiate twice a function that was marked with @once_differentiable"):
        first.backward()


class _TwoResults(norch.autograd.Function):
    """exp(x) and exp(2 x), their derivatives by the results."""

    contexts = []

    @staticmethod
    def forward(ctx, x):
        _TwoResults.contexts[:] = [ctx]
        first, second = x.exp(), (2 * x).exp()
        ctx.save_for_backward(first, second)
        return first, second

    @staticmethod
    def backward(ctx, of_first, of_second):
        first, second = ctx.saved_tensors
        assert first.requires_grad
        assert not first.is_leaf
        return of_first * first + 2 * of_second * second


def test_a_result_that_is_saved_can_be_differentiated_by():
    x = norch.tensor([0.1, 0.5], dtype=norch.float64, requires_grad=True)
    assert gradgradcheck(lambda x: sum(_TwoResults.apply(x)), (x,))
    first, second = _TwoResults.apply(x)
    (grad,) = norch.autograd.grad((first + second).sum(), x, create_graph=True)
    (curvature,) = norch.autograd.grad(grad.sum(), x)
    expected = x.exp() + 4 * (2 * x).exp()
    assert norch.allclose(curvature, expected)


def test_a_saved_result_does_not_keep_the_graph():
    x = norch.ones(2, requires_grad=True)
    results = _TwoResults.apply(x)
    context = weakref.ref(_TwoResults.contexts.pop())
    del results
    assert context() is None


def test_the_node_has_what_forward_left():
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.factor = 3
            return x * 3

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor

    x = norch.ones(2, requires_grad=True)
    node = Scaled.apply(x).grad_fn
    assert (node.factor, node.needs_input_grad) == (3, (True,))
    assert node.saved_tensors[0] is x
    with pytest.raises(AttributeError):
        node.missing


class Power(norch.autograd.Function):
    @staticmethod
    def forward(x: Any, exponent: int = 3) -> Any:
        return x**exponent

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.exponent = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        assert ctx.needs_input_grad == (True, False)
        return grad * ctx.exponent * ctx.saved_tensors[0] ** (ctx.exponent - 1), None


def test_defaults_of_forward_are_arguments():
    x = norch.tensor(2.0, requires_grad=True)
    for result, slope in ((Power.apply(x), 12), (Power.apply(x, 2), 4), (Power.apply(exponent=4, x=x), 32)):
        x.grad = None
        result.backward()
        assert x.grad.item() == slope
    with pytest.raises(TypeError, match="missing a required argument"):
        Power.apply()

    class Plain(norch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

    with pytest.raises(TypeError, match="arguments by name need a setup_context"):
        Plain.apply(x=x)
