"""`norch.autograd.functional`: Jacobians, Hessians and their products with vectors, against matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import norch
from norch import AutogradError, ShapeError, Tensor
from norch.autograd import functional

A = norch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]], dtype=norch.float64)
B = norch.tensor([[2.0, 1.0], [-1.0, 4.0]], dtype=norch.float64)
X = norch.tensor([0.3, -0.7, 1.1], dtype=norch.float64)
Y = norch.tensor([1.5, -0.4], dtype=norch.float64)
U = norch.tensor([1.0, -2.0, 0.5], dtype=norch.float64)
V = norch.tensor([0.7, 3.0], dtype=norch.float64)
H = A.T @ A + 1


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), 1e-12, 1e-12)


def two_of_two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return A @ x + B @ y, (x * x).sum()


def quadratic(x: Tensor) -> Tensor:
    return x @ H @ x / 2


def mixed(x: Tensor, y: Tensor) -> Tensor:
    return (A @ x) @ y + (y**3).sum()


# --- Jacobians ------------------------------------------------------------------------------------------------------


def test_jacobian_has_the_dims_of_output_and_input() -> None:
    close(functional.jacobian(lambda x: A @ x, X), A)
    by_element = functional.jacobian(lambda m: m.t() * 2, A)
    assert by_element.shape == (3, 2, 2, 3)
    for i, j in np.ndindex(3, 2):
        expected = np.zeros((2, 3))
        expected[j, i] = 2
        assert by_element[i, j].tolist() == expected.tolist()
    assert functional.jacobian(lambda x: x.sum(), X).shape == (3,)
    assert functional.jacobian(lambda x: x[:0], X).shape == (0, 3)
    assert functional.jacobian(lambda x: norch.ones(2), X).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_jacobian_of_several_inputs_and_outputs() -> None:
    (first_by_x, first_by_y), (second_by_x, second_by_y) = functional.jacobian(two_of_two, (X, Y))
    close(first_by_x, A)
    close(first_by_y, B)
    close(second_by_x, 2 * X)
    close(second_by_y, 0 * Y)
    (only,) = functional.jacobian(lambda x: A @ x, (X,))
    close(only, A)
    (of_tuple,) = functional.jacobian(lambda x: (A @ x,), X)
    close(of_tuple, A)


def test_a_jacobian_that_is_differentiated_again() -> None:
    x = X.clone().requires_grad_()
    found = functional.jacobian(lambda x: x**3, x, create_graph=True)
    found.sum().backward()
    close(x.grad, 6 * X)
    assert not functional.jacobian(lambda x: x**3, x).requires_grad


@pytest.mark.parametrize("function", [lambda x, y: (x**2).outer(y), lambda x, y: (x * 2, y.sum() * x, y * 0 + 1)])
def test_all_rows_of_a_jacobian_at_once(function: Callable[..., Any]) -> None:
    wanted = functional.jacobian(function, (X, Y))
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    found = functional.jacobian(function, (x, y), create_graph=True, vectorize=True)
    blocks, expected = flat(found), flat(wanted)
    assert len(blocks) == len(expected)
    assert any(block.requires_grad for block in blocks)
    for block, value in zip(blocks, expected, strict=True):
        close(block.detach(), value)


def flat(values: Any) -> list[norch.Tensor]:
    return [x for v in values for x in flat(v)] if isinstance(values, tuple) else [values]


def test_all_rows_of_a_hessian_at_once() -> None:
    close(functional.hessian(quadratic, X, vectorize=True), H)
    found, wanted = (flat(functional.hessian(mixed, (X, Y), vectorize=at_once)) for at_once in (True, False))
    for block, expected in zip(found, wanted, strict=True):
        close(block, expected)
    with pytest.raises(AutogradError, match="does not depend on"):
        functional.hessian(lambda x, y: (x**2).sum(), (X, Y), strict=True, vectorize=True)


def test_rows_one_by_one_where_a_rule_looks_at_its_gradient() -> None:
    class Looks(norch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: norch.Tensor) -> norch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: norch.Tensor) -> norch.Tensor:
            return grads[0] * 2 if float(grads[0].sum()) else grads[0]

    close(functional.jacobian(Looks.apply, X, vectorize=True), 2 * norch.eye(len(X), dtype=X.dtype))


def test_strategies_give_the_same() -> None:
    close(functional.jacobian(lambda x: A @ x, X, vectorize=True, strategy="forward-mode"), A)
    with pytest.raises(ValueError, match="'reverse-mode' or 'forward-mode', got 'both'"):
        functional.jacobian(lambda x: x, X, strategy="both")


# --- Hessians -------------------------------------------------------------------------------------------------------


def test_hessian() -> None:
    close(functional.hessian(quadratic, X), H)
    close(functional.hessian(lambda x: quadratic(x).reshape(1, 1), X), H)
    (xx, xy), (yx, yy) = functional.hessian(mixed, (X, Y))
    close(xx, norch.zeros(3, 3, dtype=norch.float64))
    close(xy, A.T)
    close(yx, A)
    close(yy, norch.diag(6 * Y))


@pytest.mark.parametrize("function", [functional.hessian, functional.hvp, functional.vhp])
def test_a_hessian_is_of_one_element(function: Callable[..., Any]) -> None:
    given = (X,) if function is functional.hessian else (X, U)
    for wrong in (lambda x: x * 2, lambda x: (x.sum(), x.sum()), lambda x: x[:0]):
        with pytest.raises(ShapeError, match="one tensor of one element"):
            function(wrong, *given)


# --- Products -------------------------------------------------------------------------------------------------------


def test_products_with_a_jacobian() -> None:
    outputs, by_both = functional.vjp(two_of_two, (X, Y), (V, norch.tensor(3.0, dtype=norch.float64)))
    close(outputs[0], two_of_two(X, Y)[0])
    close(outputs[1], two_of_two(X, Y)[1])
    close(by_both[0], A.T @ V + 6 * X)
    close(by_both[1], B.T @ V)
    outputs, products = functional.jvp(two_of_two, (X, Y), (U, V))
    close(outputs[1], two_of_two(X, Y)[1])
    close(products[0], A @ U + B @ V)
    close(products[1], 2 * X @ U)
    value, product = functional.vjp(quadratic, X)  # v may be left out for one element
    close(value, quadratic(X))
    close(product, H @ X)
    assert not value.requires_grad
    assert not product.requires_grad


@pytest.mark.parametrize("function", [functional.hvp, functional.vhp])
def test_products_with_a_hessian(function: Callable[..., Any]) -> None:
    value, product = function(quadratic, X, U)
    close(value, quadratic(X))
    close(product, H @ U)
    _, (by_x, by_y) = function(mixed, (X, Y), (U, V))
    close(by_x, A.T @ V)
    close(by_y, A @ U + 6 * Y * V)


@pytest.mark.parametrize("name", ["vjp", "jvp", "hvp", "vhp"])
def test_products_that_are_differentiated_again(name: str) -> None:
    x = X.clone().requires_grad_()
    cube = (lambda x: (x**3).sum()) if name != "jvp" else (lambda x: x**3)
    v = None if name == "vjp" else U
    value, product = getattr(functional, name)(cube, x, v, create_graph=True)
    assert value.requires_grad
    product.sum().backward()
    close(x.grad, {"vjp": 6 * X, "jvp": 6 * X * U}.get(name, 6 * U))


# --- What is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["jacobian", "hessian", "vjp", "jvp", "hvp"])
def test_strict_names_what_does_not_depend_on_the_inputs(name: str) -> None:
    function = getattr(functional, name)
    v = () if name in ("jacobian", "hessian") else ((norch.ones_like(X), norch.ones_like(Y)),)
    if name == "vjp":
        v = (None,)
    with pytest.raises(AutogradError, match=rf"{name}\(\): an output does not depend on"):
        function(lambda x, y: (x**2).sum(), (X, Y), *v, strict=True)
    with pytest.raises(AutogradError, match=rf"{name}\(\): an output does not depend on"):
        function(lambda x, y: norch.ones((), dtype=norch.float64), (X, Y), *v, strict=True)


def test_vectors_of_the_wrong_shape() -> None:
    for function in (functional.vjp, functional.jvp):
        name = function.__name__
        with pytest.raises(ShapeError, match=rf"{name}\(\): v has shapes \[\(4,\)\]"):
            function(lambda x: x * 2, X, norch.ones(4, dtype=norch.float64))
        with pytest.raises(AutogradError, match=rf"{name}\(\): v can be left out only"):
            function(lambda x: x * 2, X)
    with pytest.raises(ShapeError, match="hvp"):
        functional.hvp(mixed, (X, Y), (U,))


@pytest.mark.parametrize("name", ["jacobian", "hessian", "vjp", "jvp", "hvp"])
def test_functions_must_return_tensors(name: str) -> None:
    v = () if name in ("jacobian", "hessian") else (U,)
    for result in (2.0, None, "x"):
        with pytest.raises(AutogradError, match=rf"{name}\(\): the function must return"):
            getattr(functional, name)(lambda x, result=result: result, X, *v)


def test_inputs_are_left_alone() -> None:
    x = X.clone().requires_grad_()
    functional.jacobian(lambda x: x * 2, x)
    functional.vjp(lambda x: (x * 2).sum(), x)
    assert x.grad is None


@pytest.mark.parametrize("name", ["jacobian", "hessian", "vjp", "hvp"])
def test_gradients_are_recorded_under_no_grad(name: str) -> None:
    v = (U,) if name == "hvp" else ()
    expected = getattr(functional, name)(quadratic, X, *v)
    with norch.no_grad():
        found = getattr(functional, name)(quadratic, X, *v)
    for got, wanted in zip(found, expected) if isinstance(found, tuple) else [(found, expected)]:
        close(got, wanted)
