"""Functions as attributes of classes: PyTorch's are built in, so that they are no methods of it."""

from __future__ import annotations

import pytest

import norch


class Backend:
    """As libraries that know several frameworks have one."""

    sin, maximum, pow, add, where = norch.sin, norch.maximum, norch.pow, norch.add, norch.where
    sum, softmax, isfinite, zeros, randn = norch.sum, norch.softmax, norch.isfinite, norch.zeros, norch.randn
    flip, gammainc, sort, fft, as_tensor = (
        norch.flip,
        norch.special.gammainc,
        norch.sort,
        norch.fft.fft,
        norch.as_tensor,
    )
    arccosh = norch.arccosh


class Own(Backend):
    pass


X = norch.tensor([[1.0, 2.0], [3.0, 4.0]])

CALLS = {
    "sin": (X,), "maximum": (X, X.t()), "pow": (X, 2), "add": (X, 1), "where": (X > 1, X, 0.0), "sum": (X, 1),
    "softmax": (X, -1), "isfinite": (X,), "zeros": (2, 3), "flip": (X, [0]), "gammainc": (X, X), "arccosh": (X,),
    "as_tensor": ([1.0],),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", [Backend, Own])
def test_they_are_called_without_the_object(kind, name):
    found, expected = getattr(kind(), name)(*CALLS[name]), getattr(kind, name)(*CALLS[name])
    norch.testing.assert_close(found, expected)


def test_with_names_and_out():
    backend, out = Backend(), norch.empty(2, 2)
    norch.testing.assert_close(backend.add(X, X, alpha=2), 3 * X)
    assert backend.sin(X, out=out) is out
    norch.testing.assert_close(out, X.sin())
    norch.testing.assert_close(backend.sum(X, dim=0, keepdim=True), X.sum(0, keepdim=True))
    assert backend.sort(X, descending=True).values[0].tolist() == [2, 1]
    assert backend.randn(2, 3).shape == (2, 3)
    assert norch.view_as_real(backend.fft(X)).shape == (2, 2, 2)


def test_an_object_of_another_class_is_refused():
    class Other:
        pass

    for wrong in (
        lambda: norch.sin(Other(), X),
        lambda: norch.maximum(Other(), X, X),
        lambda: norch.sum(Other(), 1),
        lambda: norch.where(Other(), X > 1, X, 0.0),
        lambda: Backend().sum("X"),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_a_class_without_a_module_is_refused_too():
    made = eval("type('A', (), {})()", {})
    assert not hasattr(type(made), "__module__")
    for wrong in (lambda: norch.sum(made), lambda: norch.sin(made, X), lambda: norch.where(made, X, X, X)):
        with pytest.raises(TypeError):
            wrong()
