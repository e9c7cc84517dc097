"""What scatters, and assignments at index tensors: they write into memory where they may."""

from __future__ import annotations

import numpy as np
import pytest

import norch

INDEX = norch.tensor([[0, 2, 1, 0], [2, 2, 0, 1]])
ROWS = norch.tensor([2, 0, 2])


def draw(*shape):
    return norch.tensor(np.random.default_rng(0).standard_normal(shape))


CALLS = {
    "scatter_": lambda x, src: x.scatter_(0, INDEX, src[:2]),
    "scatter_ of a number": lambda x, src: x.scatter_(-2, INDEX, 3.5),
    "scatter_add_": lambda x, src: x.scatter_add_(0, INDEX, src[:2]),
    "index_add_": lambda x, src: x.index_add_(0, ROWS, src),
    "index_add_ of columns": lambda x, src: x.index_add_(-1, ROWS, src[:, :3]),
    "index_copy_": lambda x, src: x.index_copy_(0, ROWS[:2], src[:2]),
    "index_copy_ of columns": lambda x, src: x.index_copy_(-1, ROWS[:2], src[:, :2]),
    "index_fill_ of a number": lambda x, src: x.index_fill_(0, ROWS, 2.5),
    "index_fill_ of columns, a number": lambda x, src: x.index_fill_(-1, ROWS, 2.5),
    "put_": lambda x, src: x.put_(INDEX[0, :3], src[0, :3]),
    "put_ accumulating": lambda x, src: x.put_(INDEX, src[:2], accumulate=True),
}


def layouts(x):
    yield x.clone()
    yield x.T.contiguous().T
    yield norch.cat([x, x], 1)[:, 2:6]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("recording", [True, False])
def test_memory_gets_what_the_functions_give(name, recording):
    call, src = CALLS[name], draw(3, 4)
    for x in layouts(draw(3, 4) + 1):
        expected, base = call(x.clone().requires_grad_().clone(), src).detach(), x.data_ptr()
        with norch.set_grad_enabled(recording):
            assert call(x, src) is x
        assert x.data_ptr() == base
        np.testing.assert_array_equal(x.numpy(), expected.numpy())


@pytest.mark.parametrize("name", CALLS)
def test_what_was_saved_is_known_to_have_changed(name):
    x, w = draw(3, 4), draw(3, 4).requires_grad_()
    product = (x * w).sum()
    CALLS[name](x, draw(3, 4))
    with pytest.raises(norch.AutogradError, match=name.split()[0]):
        product.backward()


@pytest.mark.parametrize("name", [n for n in CALLS if "number" not in n])
def test_gradients_reach_what_is_scattered(name):
    src = draw(3, 4).requires_grad_()
    (CALLS[name](norch.zeros(3, 4, dtype=norch.float64), src) * 2).sum().backward()
    assert set(src.grad.unique().tolist()) <= {0, 2}
    assert src.grad.sum() > 0
    with pytest.raises(norch.AutogradError, match="leaf"):
        CALLS[name](draw(3, 4).requires_grad_(), draw(3, 4))


@pytest.mark.parametrize("name", CALLS)
def test_a_shared_memory_is_refused_and_a_source_that_is_the_tensor_is_read_as_it_was(name):
    with pytest.raises(norch.ShapeError, match="share"):
        CALLS[name](draw(1, 4).expand(3, 4), draw(3, 4))
    x = draw(3, 4)
    expected = CALLS[name](x.clone(), x.clone())
    np.testing.assert_array_equal(CALLS[name](x, x).numpy(), expected.numpy())


def test_errors_are_those_of_the_functions():
    x = draw(3, 4)
    with pytest.raises(norch.IndexError):
        x.scatter_(0, norch.tensor([[0, 3]]), 1.0)
    with pytest.raises(norch.ShapeError):
        x.scatter_add_(1, norch.zeros(4, 1, dtype=norch.int64), draw(4, 1))
    with pytest.raises(norch.DTypeError):
        x.scatter_(0, INDEX, draw(3, 4).float())
    with pytest.raises(norch.DTypeError):
        x.scatter_(0, INDEX.double(), draw(3, 4))
    with pytest.raises(norch.ShapeError):
        x.index_add_(0, ROWS, draw(2, 4))


@pytest.mark.parametrize("value", [1.5, "row", "each", "outer"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_tensors_of_the_first_dims(value, accumulate):
    array = np.random.default_rng(1).standard_normal((3, 4, 5))
    index = (np.array([2, 0, -1]), np.array([1, 1, 3]))
    if value == "outer":
        index = (index[0][:, None], index[1])
    given = {"row": array[0, 0], "each": array[:, 0], "outer": array[1, 1]}.get(value, 1.5)
    expected, x = array.copy(), norch.tensor(array)
    if accumulate:
        np.add.at(expected, index, given)
    else:
        expected[index] = given
    x.index_put_([norch.tensor(i) for i in index], norch.tensor(given, dtype=norch.float64), accumulate)
    np.testing.assert_allclose(x.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 3), (3,), ()])
@pytest.mark.parametrize("index", [norch.tensor([]), norch.zeros(0, 2, 2, dtype=norch.int64)], ids=["list", "3-D"])
def test_an_index_of_no_elements_scatters_nothing(shape: tuple[int, ...], index: norch.Tensor) -> None:
    x, given = norch.rand(shape, requires_grad=True), norch.rand(shape)
    for found in [
        x.scatter(0, index, given), x.scatter(0, index, 1.0), x.scatter_add(0, index, given),
        x.scatter_reduce(0, index, given, "amax"), x.scatter(0, index, given, reduce="multiply"),
        x.clone().scatter_(0, index, 2.0), x.clone().scatter_add_(0, index, given),
    ]:  # fmt: skip
        assert found.tolist() == x.tolist()
        assert norch.autograd.grad(found.sum(), x)[0].tolist() == norch.ones(shape).tolist()
    fresh = given.clone()
    assert fresh.scatter_(0, index, 2.0) is fresh
    assert fresh.tolist() == given.tolist()


def test_an_index_of_slices_holds_integers() -> None:
    with pytest.raises(norch.DTypeError, match=r"index_add\(\): index must hold integers"):
        norch.zeros(2).index_add(0, norch.tensor([]), norch.zeros(0))


def test_only_a_number_fills() -> None:
    x = norch.zeros(3, 3)
    with pytest.raises(norch.ShapeError, match="0-d"):
        x.index_fill_(0, norch.tensor([0, 2]), norch.ones(2, 3))
    assert x.index_fill_(0, norch.tensor([0, 2]), norch.tensor(2.0)).sum(1).tolist() == [6, 0, 6]


@pytest.mark.parametrize("shape", [(3, 4), (0, 4)])
def test_a_source_of_no_elements_has_a_gradient(shape: tuple[int, ...]) -> None:
    """As parameters have that were applied to no row: None would keep an optimiser from decaying them."""
    x, scale = norch.randn(*shape).requires_grad_(), norch.ones(4).requires_grad_()
    none = norch.zeros(shape[0], dtype=norch.bool)
    x.masked_scatter(none.unsqueeze(-1), x[none] * scale).sum().backward()
    assert norch.equal(x.grad, norch.ones(shape))
    if shape[0]:
        assert norch.equal(scale.grad, norch.zeros(4))
