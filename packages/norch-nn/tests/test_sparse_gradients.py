"""Tables of rows whose gradients are sparse: what they are, who steps by them, and who takes them as dense ones."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import norch
import norch.nn.functional as F
from norch import nn, optim

INDICES = norch.tensor([[1, 2, 2], [3, 4, 0]])


def table(lib: Any = norch, rows: int = 10) -> Any:
    return (lib.arange(rows * 3.0).reshape(rows, 3) / 10).requires_grad_()


def gradient(sparse: bool, **options: Any) -> norch.Tensor:
    weight = table()
    given = options.pop("input", INDICES)
    out = (F.embedding_bag if "mode" in options else F.embedding)(given, weight, sparse=sparse, **options)
    (out * norch.arange(float(out.numel())).reshape(out.shape)).sum().backward()
    assert weight.grad is not None
    assert weight.grad.is_sparse is sparse
    return weight.grad.to_dense() if sparse else weight.grad


def stored(layer: Any) -> int:
    """How many elements a sparse gradient has, rows here."""
    count: int = layer.weight.grad._nnz()
    return count


BAGS = {"input": INDICES.reshape(-1), "offsets": norch.tensor([0, 2, 2])}
BEGUN_LATER = {**BAGS, "offsets": norch.tensor([1, 4, 5]), "include_last_offset": True}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding_idx": 2},
        {"padding_idx": -6},
        {"scale_grad_by_freq": True},
        {"max_norm": 1.0},
        {"input": norch.zeros(0, dtype=norch.int64)},
        {"input": INDICES.to(norch.int32)},
        *[{"mode": mode, **more} for mode in ("sum", "mean", "max") for more in ({}, {"padding_idx": 2}, BAGS)],
        {"mode": "sum", **BEGUN_LATER},
        {"mode": "mean", **BAGS, "padding_idx": 2},
        {"mode": "sum", "per_sample_weights": norch.arange(6.0).reshape(2, 3)},
    ],
)
def test_sparse_gradients_are_the_dense_ones(options: dict[str, Any]) -> None:
    norch.testing.assert_close(gradient(True, **options), gradient(False, **options))


def test_rows_that_are_padding_or_not_named_are_not_stored() -> None:
    layer = nn.Embedding(10, 3, padding_idx=2, sparse=True)
    assert repr(layer) == "Embedding(10, 3, padding_idx=2, sparse=True)"
    layer(INDICES).sum().backward()
    grad: Any = layer.weight.grad
    assert grad._indices().tolist() == [[1, 3, 4, 0]]
    layer(INDICES).sum().backward()
    grad = layer.weight.grad
    assert grad.coalesce().values().tolist() == [[2.0] * 3] * 4
    bag = nn.EmbeddingBag(10, 3, sparse=True)
    bag(INDICES).sum().backward()
    assert stored(bag) == 6


def test_rows_that_are_read_twice_by_one_index_are_added_where_they_are() -> None:
    layer, index = nn.Embedding(10, 3, sparse=True), INDICES[0]
    factors = norch.arange(9.0).reshape(3, 3) / 7
    ((layer(index) * factors).sum() - (layer(index) * factors).sum()).backward()
    grad: Any = layer.weight.grad
    assert grad._nnz() == 3
    assert grad.to_dense().count_nonzero().item() == 0  # no rounding is left of sums that cancel


def test_what_is_no_leaf_has_dense_gradients() -> None:
    weight = table()
    F.embedding(INDICES, weight * 1, sparse=True).sum().backward()
    assert weight.grad is not None
    assert not weight.grad.is_sparse
    with norch.no_grad():
        assert not F.embedding(INDICES, weight, sparse=True).requires_grad
    grad = norch.func.grad(lambda w, x: F.embedding(x, w, sparse=True).sum())
    assert norch.func.vmap(grad, in_dims=(None, 0))(weight.detach(), INDICES).shape == (2, 10, 3)


def test_forward_derivatives_of_rows() -> None:
    weight, change = table().detach(), norch.arange(30.0).reshape(10, 3)
    value, pushed = norch.func.jvp(lambda w: F.embedding(INDICES, w, sparse=True) ** 2, (weight,), (change,))
    norch.testing.assert_close(pushed, 2 * weight[INDICES] * change[INDICES])
    first: Any = norch.autograd.grad((F.embedding(INDICES, w := table(), sparse=True) ** 3).sum(), w, create_graph=True)
    second = norch.autograd.grad(first[0], w, norch.ones(10, 3))[0]
    assert second is not None
    norch.testing.assert_close(second.to_dense()[3], 6 * w.detach()[3])


def test_a_table_that_is_used_otherwise_too_has_a_dense_gradient() -> None:
    layer = nn.Embedding(10, 3, sparse=True)
    F.linear(layer(INDICES), layer.weight).sum().backward()
    dense = nn.Embedding(10, 3, _weight=layer.weight.detach())
    F.linear(dense(INDICES), dense.weight).sum().backward()
    assert layer.weight.grad is not None
    assert not layer.weight.grad.is_sparse
    norch.testing.assert_close(layer.weight.grad, dense.weight.grad)


def test_recorded_steps_have_dense_gradients() -> None:
    def losses(sparse: bool, captured: bool) -> list[float]:
        weight = table()
        optimizer = optim.SGD([weight], lr=0.1)

        def step(x: norch.Tensor) -> norch.Tensor:
            optimizer.zero_grad()
            loss = F.embedding(x, weight, sparse=sparse).pow(2).sum()
            loss.backward()
            optimizer.step()
            return loss

        run = norch.capture(step) if captured else step
        return [run((INDICES + i) % 10).item() for i in range(6)]

    assert losses(True, True) == pytest.approx(losses(False, False))


def row_wise_step(p: Any, state: Any) -> None:
    """As recommender systems step by the rows of sparse gradients."""
    grad = p.grad.coalesce()
    if "momentum" not in state:
        state["momentum"] = p.detach().new_full((p.shape[0],), 0.1)
    squares = grad.new(grad._indices(), grad._values().pow(2).mean(dim=1), [grad.size(0)])
    state["momentum"].add_(squares)
    std = state["momentum"].sparse_mask(squares.coalesce())._values().sqrt_().add_(1e-10)
    p.data.add_(grad.new(grad._indices(), grad._values() / std.view(-1, 1), grad.size()), alpha=-0.1)


OPTIMIZERS = [
    ("SGD", {}),
    ("SGD", {"maximize": True}),
    ("SGD", {"momentum": 0.9}),
    ("Adagrad", {}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.2, "maximize": True}),
    ("SparseAdam", {}),
    ("SparseAdam", {"maximize": True}),
    ("RowWise", {}),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_optimizers_step_by_them_as_pytorchs_do(name: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    results: list[Any] = []
    for lib in (norch, torch):
        weight, state = table(lib), dict[str, Any]()
        optimizer = None if name == "RowWise" else getattr(lib.optim, name)([weight], lr=0.1, **options)
        for i in range(4):
            weight.grad = None
            x = (lib.tensor(INDICES.tolist()) + i) % 10
            lib.nn.functional.embedding(x, weight, sparse=True).pow(2).sum().backward()
            if optimizer is None:
                row_wise_step(weight, state)
            else:
                optimizer.step()
        results.append(weight.detach().cpu().numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
def test_steps_leave_other_rows_alone(name: str) -> None:
    weight = table()
    with norch.no_grad():
        weight[7] = norch.nan
    optimizer = getattr(optim, name)([weight], lr=0.1)
    before = weight.tolist()
    for _ in range(2):
        optimizer.zero_grad()
        F.embedding(INDICES, weight, sparse=True).sum().backward()
        optimizer.step()
    np.testing.assert_array_equal(weight.tolist()[5:], before[5:])
    assert all(row != old for row, old in zip(weight.tolist()[:5], before[:5], strict=True))


def test_others_take_them_as_dense_ones() -> None:
    def run(sparse: bool, scaled: bool) -> list[Any]:
        weight, other = table(), norch.ones(3, requires_grad=True)
        optimizer, scaler = optim.Adam([weight, other], lr=0.1), norch.amp.GradScaler("cpu", enabled=scaled)
        found: list[Any] = []
        for i in range(3):
            optimizer.zero_grad(set_to_none=i > 1)
            scaler.scale((F.embedding((INDICES + i) % 10, weight, sparse=sparse) * other).pow(2).sum()).backward()
            scaler.unscale_(optimizer)
            found += [nn.utils.clip_grad_norm_([weight, other], 3.0, order).item() for order in (2.0, 1.0)]
            nn.utils.clip_grad_value_([weight, other], 0.5)
            scaler.step(optimizer)
            scaler.update()
        return [*found, *weight.flatten().tolist(), *other.tolist()]

    assert run(True, False) == pytest.approx(run(False, False))
    assert run(True, True) == pytest.approx(run(False, False), rel=1e-5)


def test_a_copy_of_a_model_has_them_too() -> None:
    layer = nn.Embedding(10, 3, sparse=True)
    layer(INDICES).sum().backward()
    copied = copy.deepcopy(layer)
    assert layer.weight.grad is not None
    layer.weight.grad.zero_()
    assert (stored(layer), stored(copied)) == (0, 6)
