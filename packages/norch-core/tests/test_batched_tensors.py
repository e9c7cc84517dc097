"""What programs ask of vmap's tensors, and containers that say themselves how they are mapped over."""

from __future__ import annotations

import sys

import pytest

import norch
from norch._C import _functorch
from norch.func import functionalize, grad, vmap


class Named:
    """Tensors by name with `shape` in front of their own dims."""

    def __init__(self, tensors, shape):
        self.tensors, self.shape = tensors, shape

    def __getitem__(self, index):
        found = {name: tensor[index] for name, tensor in self.tensors.items()}
        return Named(found, next(iter(found.values())).shape[: len(self.shape)])

    def _add_batch_dim(self, *, in_dim, vmap_level):
        rest = tuple(size for d, size in enumerate(self.shape) if d != in_dim)
        tensors = {n: _functorch._add_batch_dim(t, in_dim, vmap_level) for n, t in self.tensors.items()}
        return Named(tensors, rest)

    def _maybe_remove_batch_dim(self, name, vmap_level, batch_size, out_dim):
        shape = (*self.shape[:out_dim], batch_size, *self.shape[out_dim:])
        return Named(
            {n: _functorch._remove_batch_dim(t, vmap_level, batch_size, out_dim) for n, t in self.tensors.items()},
            shape,
        )


def test_containers_map_themselves():
    a, b = norch.arange(6.0).reshape(2, 3), norch.arange(24.0).reshape(2, 3, 4)
    seen = []

    def twice(named, x):
        seen.append((named.shape, named.tensors["b"].shape))
        return Named({"a": named.tensors["a"] * x, "b": norch.ones(named.shape[0], 2)}, named.shape)

    found = vmap(twice, (1, 0), 1)(Named({"a": a, "b": b}, (2, 3)), norch.tensor([1.0, 10.0, 100.0]))
    assert seen == [((2,), (2, 4))]
    assert found.shape == (2, 3)
    assert found.tensors["a"].tolist() == (a * norch.tensor([1.0, 10.0, 100.0])).tolist()
    assert found.tensors["b"].shape == (2, 3, 2)
    sums = vmap(lambda named: named.tensors["b"].sum(), chunk_size=2)(Named({"b": norch.ones(5, 3)}, (5,)))
    assert sums.tolist() == [3] * 5
    with pytest.raises(ValueError, match="in_dims has 2"):
        vmap(twice, (2, None))(Named({"a": a, "b": b}, (2, 3)), norch.ones(()))


def test_questions_about_samples():
    x = norch.arange(6.0).reshape(2, 3)
    seen = []

    def outer(row):
        def inner(value):
            seen.append([_functorch.maybe_get_level(t) for t in (value, row, x)])
            assert _functorch.is_batchedtensor(value)
            assert not _functorch.is_batchedtensor(x)
            assert norch._C._are_functorch_transforms_active()
            assert _functorch.get_unwrapped(value).shape == (3,)
            return value * 2

        return vmap(inner)(row)

    assert vmap(outer)(x).tolist() == (x * 2).tolist()
    assert seen == [[2, 1, -1]]
    assert not norch._C._are_functorch_transforms_active()
    assert _functorch.maybe_current_level() is None
    assert _functorch.get_unwrapped(x) is x
    assert _functorch.is_gradtrackingtensor(x) is False
    assert _functorch.maybe_get_bdim(x) == -1


def test_what_leaves_a_level():
    from norch._functorch.vmap import _maybe_remove_batch_dim

    def check(value):
        with pytest.raises(ValueError, match="differs from sample to sample"):
            _maybe_remove_batch_dim("f", value, 1, 2, None)
        assert _maybe_remove_batch_dim("f", norch.ones(3), 1, 2, 0).shape == (2, 3)
        assert _maybe_remove_batch_dim("f", value, 1, 2, 1).tolist() == [[1, 3], [2, 4]]
        return value

    vmap(check)(norch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    with pytest.raises(ValueError, match="must return tensors, got int"):
        _maybe_remove_batch_dim("f", 3, 1, 2, 0)


def test_functionalize():
    def changes(x):
        y = x.clone()
        y[0] = 0
        y.mul_(3)
        return y.sum()

    x = norch.tensor([1.0, 2.0])
    assert functionalize(changes)(x).item() == 6
    assert grad(functionalize(changes, remove="mutations_and_views"))(x).tolist() == [0, 3]
    with pytest.raises(ValueError, match="remove must be"):
        functionalize(changes, remove="all")


CHANGES = {
    "squeeze_": lambda x: x.squeeze_(0), "unsqueeze_": lambda x: x.unsqueeze_(-1), "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1), "swapaxes_": lambda x: x.swapaxes_(-1, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_shapes_of_samples_change_in_place(name):
    x, weight = norch.arange(12.0).reshape(4, 1, 3), norch.rand(3, 2)

    def summed(sample):
        y = sample * 1
        CHANGES[name](y)
        return y.sum(0)

    found = vmap(summed)(x)
    assert found.tolist() == norch.stack([summed(sample) for sample in x]).tolist()
    by_two = vmap(vmap(summed))(x.reshape(2, 2, 1, 3))
    assert by_two.flatten(0, 1).tolist() == found.tolist()

    def loss(weight, sample):
        y = sample.mm(weight)
        CHANGES[name](y)
        return y.sum()

    gradients = vmap(lambda sample: grad(loss)(weight, sample))(x)
    assert gradients.tolist() == norch.stack([grad(loss)(weight, sample) for sample in x]).tolist()


def test_derivatives_keep_the_class_of_what_they_are_given() -> None:
    """PyTorch's do not: pypose has `_wrap_tensor_for_grad`, by its place and name, put back the class that was lost."""
    from norch._functorch import eager_transforms

    class Pose(norch.Tensor):
        pass

    x = norch.arange(3.0).as_subclass(Pose)
    seen = []
    norch.func.jacrev(lambda pose: seen.append(type(pose)) or pose * 2)(x)
    wrap = eager_transforms._wrap_tensor_for_grad
    assert seen == [Pose]
    assert wrap(x, 1) is x
    assert getattr(sys.modules[wrap.__module__], wrap.__name__) is wrap
