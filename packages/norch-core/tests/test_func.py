"""norch.func: derivatives of functions, by closed forms, within one another and within vmap."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import norch
from norch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, value_and_grad, vjp, vmap


def close(found: norch.Tensor, expected: object, rtol: float = 1e-6) -> None:
    np.testing.assert_allclose(found.detach().numpy(), np.asarray(expected), rtol=rtol, atol=1e-7)


X = np.linspace(-1.3, 1.7, 6).reshape(2, 3)
V = np.linspace(0.4, 2.1, 6).reshape(2, 3)


@pytest.fixture
def x() -> norch.Tensor:
    return norch.tensor(X)


@pytest.fixture
def v() -> norch.Tensor:
    return norch.tensor(V)


def test_grad(x, v) -> None:
    close(grad(lambda a: a.sin().sum())(x), np.cos(X))
    close(grad(lambda a, b: (a * b).sum(), argnums=1)(x, v), X)
    first, second = grad(lambda a, b: (a * b).sum(), argnums=(0, -1))(x, v)
    close(first, V)
    close(second, X)


def test_grad_of_trees_and_keyword_arguments(x, v) -> None:
    found = grad(lambda d, scale: (d["a"] * d["b"][0]).sum() * scale)({"a": x, "b": [v]}, scale=2.0)
    assert list(found) == ["a", "b"]
    close(found["a"], 2 * V)
    close(found["b"][0], 2 * X)


def test_values_and_aux(x) -> None:
    def f(a):
        return (a * a).sum(), {"twice": 2 * a}

    found, (value, aux) = grad_and_value(f, has_aux=True)(x)
    close(found, 2 * X)
    close(value, (X * X).sum())
    close(aux["twice"], 2 * X)
    assert not any(t.requires_grad for t in (found, value, aux["twice"]))
    close(grad(f, has_aux=True)(x)[1]["twice"], 2 * X)
    value, found = value_and_grad(lambda a: (a * a).sum())(x)
    close(value, (X * X).sum())
    close(found, 2 * X)


def test_grad_within_grad() -> None:
    def power(c):
        return c**4

    close(grad(grad(grad(power)))(norch.tensor(2.0)), 48.0)
    # The inner gradient takes the outer argument for a constant.
    close(grad(lambda a: a * grad(lambda b: a * b)(norch.tensor(1.0)))(norch.tensor(3.0)), 6.0)


def test_results_are_part_of_a_graph_further_out(x) -> None:
    w = norch.tensor(V, requires_grad=True)
    found = grad(lambda a: (a * a * w).sum())(x)
    found.sum().backward()
    close(w.grad, 2 * X)
    leaf = norch.tensor(X, requires_grad=True)
    grad(lambda a: (a**3).sum())(leaf).sum().backward()
    close(leaf.grad, 6 * X)
    assert not grad(lambda a: (a * a).sum())(x).requires_grad
    with norch.no_grad():
        assert not grad(lambda a: (a * a * w).sum())(x).requires_grad


def test_what_the_output_does_not_depend_on_has_zeros(x, v) -> None:
    close(grad(lambda a, b: b.sum())(x, v), np.zeros_like(X))
    close(grad(lambda a: norch.ones(()))(x), np.zeros_like(X))
    close(jvp(lambda a: norch.ones(2), (x,), (v,))[1], [0, 0])


def test_vjp_and_jvp(x, v) -> None:
    value, back = vjp(norch.sin, x)
    close(value, np.sin(X))
    close(back(v)[0], V * np.cos(X))
    close(back(2 * v)[0], 2 * V * np.cos(X))
    value, change = jvp(norch.sin, (x,), (v,))
    close(change, V * np.cos(X))
    (total, parts), back = vjp(lambda a, b: ((a * b).sum(), {"a": a}), x, v)
    first, second = back((norch.tensor(1.0, dtype=norch.float64), {"a": x}))
    close(first, V + X)
    close(second, X)
    value, change, aux = jvp(lambda a: (a * a, a), (x,), (v,), has_aux=True)
    close(change, 2 * X * V)
    close(aux, X)


def test_a_product_under_no_grad_is_a_constant(x) -> None:
    w = x.requires_grad_()
    out, back = vjp(lambda a: a**2, w)
    with norch.no_grad():
        (y,) = back(norch.ones_like(x))
    assert not y.requires_grad
    assert out.requires_grad
    close(norch.autograd.grad(out.sum(), w)[0], 2 * X)


def test_products_are_differentiated_by_their_vectors(x, v) -> None:
    ones = norch.ones_like(x)
    _, back = vjp(norch.sin, x)
    close(vjp(lambda u: back(u)[0], v)[1](ones)[0], np.cos(X))
    close(grad(lambda u: (back(u)[0] ** 2).sum())(v), 2 * V * np.cos(X) ** 2)
    close(grad(lambda u: (jvp(norch.sin, (x,), (u,))[1] ** 2).sum())(v), 2 * V * np.cos(X) ** 2)
    with norch.no_grad():  # as in the backward of a Function
        close(vjp(lambda u: back(u)[0], v)[1](ones)[0], np.cos(X))
    leaf = norch.tensor(V, requires_grad=True)
    (back(leaf)[0] ** 2).sum().backward()
    close(leaf.grad, 2 * V * np.cos(X) ** 2)
    assert not back(v)[0].requires_grad


def test_linearize(x, v) -> None:
    value, change = linearize(norch.sin, x)
    close(value, np.sin(X))
    close(change(v), V * np.cos(X))
    close(change(2 * v), 2 * V * np.cos(X))
    close(grad(lambda u: (change(u) ** 2).sum())(v), 2 * V * np.cos(X) ** 2)
    parts, change = linearize(lambda a, b: {"product": a * b["b"]}, x, {"b": v})
    close(change(v, {"b": x})["product"], V**2 + X**2)
    close(vmap(change)(norch.stack([v, x]), {"b": norch.zeros(2, 2, 3)})["product"], np.stack([V**2, X * V]))
    with pytest.raises(norch.ShapeError, match="tangents"):
        change(v[0], {"b": x})


def test_hessian_vector_products(x, v) -> None:
    def f(a):
        return (a**3).sum()

    close(vjp(grad(f), x)[1](v)[0], 6 * X * V)
    close(jvp(grad(f), (x,), (v,))[1], 6 * X * V)


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
def test_jacobians(transform, x, v) -> None:
    expected = np.einsum("ij,ik,jl->ijkl", np.cos(X), np.eye(2), np.eye(3))
    close(transform(norch.sin)(x), expected)
    found = transform(lambda a, b: {"product": a * b, "sum": b.sum()}, argnums=(0, 1))(x, v)
    close(found["product"][1], np.einsum("ij,ik,jl->ijkl", X, np.eye(2), np.eye(3)))
    close(found["sum"][0], np.zeros((2, 3)))
    close(found["sum"][1], np.ones((2, 3)))
    jacobian, aux = transform(lambda a: (a.sum(0), a), has_aux=True)(x)
    assert tuple(jacobian.shape) == (3, 2, 3)
    close(aux, X)


def test_jacobian_in_chunks(x) -> None:
    close(jacrev(norch.exp, chunk_size=4)(x), jacrev(norch.exp)(x).numpy())


def test_hessians(x, v) -> None:
    close(hessian(lambda a: (a**3).sum())(x).reshape(6, 6), np.diag(6 * X.reshape(-1)))
    found = hessian(lambda a, b: (a * b * b).sum(), argnums=(0, 1))(x, v)
    close(found[0][1].reshape(6, 6), np.diag(2 * V.reshape(-1)))
    close(found[1][1].reshape(6, 6), np.diag(2 * X.reshape(-1)))


def test_derivatives_of_each_sample(x, v) -> None:
    """Those of an argument that all samples share too."""
    close(vmap(grad(lambda a: (a * a).sum()))(x), 2 * X)
    w = norch.tensor([1.0, 2.0, 3.0], dtype=norch.float64)
    close(vmap(grad(lambda w, a: (w * a).sum() ** 2), in_dims=(None, 0))(w, x), 2 * (X @ w.numpy())[:, None] * X)
    close(vmap(hessian(lambda a: (a**3).sum()))(x), 6 * X[:, :, None] * np.eye(3))
    close(vmap(jacfwd(norch.exp))(x), np.exp(X)[:, :, None] * np.eye(3))
    close(vmap(vmap(grad(norch.sin)))(x), np.cos(X))
    close(vmap(lambda a, b: jvp(norch.sin, (a,), (b,))[1])(x, v), V * np.cos(X))


def test_derivatives_of_a_map(x) -> None:
    def each(a):
        return (a**3).sum()

    close(grad(lambda a: vmap(each)(a).sum())(x), 3 * X**2)
    close(hessian(lambda a: vmap(each)(a).sum())(x).reshape(6, 6), np.diag(6 * X.reshape(-1)))
    close(vmap(vjp(norch.exp, x[0])[1])(norch.eye(3, dtype=norch.float64))[0], np.diag(np.exp(X[0])))


def test_nothing_is_left_of_the_graphs_of_transforms_within(x) -> None:
    """A loop that goes on with such results would keep every graph."""
    scale = norch.ones((2, 3), dtype=norch.float64)

    def inner(s):
        return grad(lambda a: ((a * s) ** 2).sum())(x)

    def pushed(s):
        return jvp(lambda a: (a * s).sin(), (x,), (x,))[1]

    for function in (inner, pushed, jacrev(inner), lambda s: linearize(lambda a: (a * s) ** 2, x)[1](x)):
        found = [*jvp(function, (scale,), (scale,)), vjp(function, scale)[0], linearize(function, scale)[1](scale)]
        assert not any(f.requires_grad for f in found)
    weight = norch.ones((2, 3), dtype=norch.float64, requires_grad=True)
    assert jvp(lambda s: inner(s) * weight, (scale,), (scale,))[1].requires_grad


def test_a_gradient_step_is_differentiated() -> None:
    """The inner loop of MAML (Finn et al., 2017)."""

    def loss(w, x):
        return ((w * x - 1) ** 2).mean()

    def adapted(w, x, query):
        return loss(w - 0.1 * grad(loss)(w, x), query)

    w, xs, queries = norch.tensor(0.5), norch.tensor([[1.0, 2.0], [3.0, 1.0]]), norch.tensor([[2.0, 1.0], [1.0, 1.0]])
    found = grad(lambda w: vmap(adapted, in_dims=(None, 0, 0))(w, xs, queries).mean())(w)
    eps = 1e-3
    pairs = list(zip(xs, queries, strict=True))
    numbers = [float(np.mean([adapted(w + d, x, q).item() for x, q in pairs])) for d in (eps, -eps)]
    close(found, (numbers[0] - numbers[1]) / (2 * eps), rtol=1e-3)


def test_mistakes_are_named(x) -> None:
    with pytest.raises(norch.ShapeError, match=r"one tensor of one element, got shapes \[\(2, 3\)\]"):
        grad(lambda a: a)(x)
    with pytest.raises(norch.DTypeError, match=r"only floating tensors .*int64"):
        grad(lambda a: a.sum())(norch.arange(3))
    with pytest.raises(norch.AutogradError, match="expected tensors to differentiate by, got float"):
        grad(lambda a: a)(3.0)
    with pytest.raises(norch.AutogradError, match="argnums has 1, but there are 1"):
        grad(lambda a: a.sum(), argnums=1)(x)
    with pytest.raises(norch.AutogradError, match="has_aux"):
        grad(lambda a: a.sum(), has_aux=True)(x)
    with pytest.raises(norch.AutogradError, match="must return a tensor"):
        vjp(lambda a: 3.0, x)
    with pytest.raises(norch.ShapeError, match=r"cotangents has \(2,\) where \(2, 3\)"):
        vjp(norch.sin, x)[1](norch.ones(2))
    with pytest.raises(norch.AutogradError, match="does not depend on the primals"):
        jvp(lambda a: norch.ones(2), (x,), (x,), strict=True)
    with pytest.raises(AttributeError, match=r"'norch\.func' has no attribute 'push_forward'"):
        norch.func.push_forward
    with pytest.raises(norch.AutogradError, match="tuples of one length"):
        jvp(norch.sin, x, x)


def test_it_is_imported_when_it_is_first_named() -> None:
    code = "import sys, norch; assert 'norch.func' not in sys.modules; norch.vmap; assert 'norch.func' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_in_place_of_torch() -> None:
    code = (
        "import norch.compat.standin as s; s.install(); import torch; from torch.func import grad, vmap; "
        "import torch.func as f, functorch; assert torch.func is f is functorch and torch.vmap is vmap; "
        "assert vmap(grad(torch.sin))(torch.zeros(3)).tolist() == [1, 1, 1]; print(f.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("norch.func", "")
