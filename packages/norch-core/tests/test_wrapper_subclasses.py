"""Subclasses of Tensor that stand for others: `Tensor._make_wrapper_subclass` and `__torch_dispatch__`."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest

import norch
from norch.compat import overrides
from norch.errors import RefusedPickleError

aten = norch.ops.aten


def unwrapped(value):
    if isinstance(value, list | tuple):
        return type(value)([unwrapped(part) for part in value])
    return value.elem if isinstance(value, Logged) else value


def wrapped(value):
    if isinstance(value, list | tuple):
        return tuple([wrapped(part) for part in value])
    return Logged(value) if isinstance(value, norch.Tensor) else value


class Logged(norch.Tensor):
    """Notes the names of the ops on it."""

    log: list[str] = []

    @staticmethod
    def __new__(cls, elem, requires_grad=False):
        out = norch.Tensor._make_wrapper_subclass(
            cls, elem.size(), strides=elem.stride(), dtype=elem.dtype, device=elem.device, requires_grad=requires_grad
        )
        out.elem = elem.detach()
        return out

    __torch_function__ = overrides._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        assert all(kind is Logged for kind in types)
        cls.log.append(str(func))
        return wrapped(func(*unwrapped(args), **{key: unwrapped(value) for key, value in (kwargs or {}).items()}))

    def __repr__(self):
        return f"Logged({self.elem})"


@pytest.fixture
def log():
    Logged.log.clear()
    return Logged.log


VALUES = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def logged(values=VALUES, **kwargs):
    return Logged(norch.tensor(values), **kwargs)


CALLS = [
    (lambda x: x + x, "add.Tensor", 2 * VALUES),
    (lambda x: 1 + x, "add.Tensor", 1 + VALUES),
    (lambda x: 1 - x, "rsub.Scalar", 1 - VALUES),
    (lambda x: x**2, "pow.Tensor_Scalar", VALUES**2),
    (lambda x: x > 0, "gt.Scalar", VALUES > 0),
    (lambda x: x > 0, "gt.Scalar", VALUES > 0),
    (lambda x: norch.relu(x), "relu.default", np.maximum(VALUES, 0)),
    (lambda x: x.exp(), "exp.default", np.exp(VALUES)),
    (lambda x: x.t(), "t.default", VALUES.T),
    (lambda x: x.view(3, 2), "view.default", VALUES.reshape(3, 2)),
    (lambda x: x[0], "select.int", VALUES[0]),
    (lambda x: x[:, 1:], "slice.Tensor", VALUES[:, 1:]),
    (lambda x: x[:, norch.tensor([2, 0])], "index.Tensor", VALUES[:, [2, 0]]),
    (lambda x: x[norch.tensor(VALUES > 0)], "index.Tensor", VALUES[VALUES > 0]),
    (lambda x: x.index_select(1, norch.tensor([2, 0])), "index_select.default", VALUES[:, [2, 0]]),
    (lambda x: x.sum(), "sum.default", VALUES.sum()),
    (lambda x: x.sum(1), "sum.dim_IntList", VALUES.sum(1)),
    (lambda x: x.sum((0, 1)), "sum.dim_IntList", VALUES.sum()),
    (lambda x: x.amax(1), "amax.default", VALUES.max(1)),
    (lambda x: x.to(norch.float64), "_to_copy.default", VALUES),
    (lambda x: x.clone(), "clone.default", VALUES),
    (lambda x: x.detach(), "detach.default", VALUES),
    (lambda x: x.expand(4, 2, 3), "expand.default", np.broadcast_to(VALUES, (4, 2, 3))),
    (lambda x: norch.cat([x, x], 1), "cat.default", np.concatenate([VALUES, VALUES], 1)),
    (lambda x: norch.stack([x, x]), "stack.default", np.stack([VALUES, VALUES])),
    (lambda x: norch.zeros_like(x), "zeros_like.default", np.zeros_like(VALUES)),
    (lambda x: norch.mm(x, norch.ones(3, 1)), "mm.default", VALUES.sum(1, keepdims=True)),
    (lambda x: norch.tril(x), "tril.default", np.tril(VALUES)),
]


@pytest.mark.parametrize(("call", "name", "expected"), CALLS, ids=[name for _, name, _ in CALLS])
def test_an_op_is_asked_for_by_pytorchs_name(log, call, name, expected):
    found = call(logged())
    assert log == [f"aten.{name}"]
    assert type(found) is Logged
    np.testing.assert_allclose(found.elem.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "name", "expected"),
    [
        (lambda x: x.add_(1), "add_.Tensor", VALUES + 1),
        (lambda x: x.__imul__(2), "mul_.Tensor", VALUES * 2),
        (lambda x: x.zero_(), "zero_.default", VALUES * 0),
        (lambda x: x.fill_(3), "fill_.Scalar", VALUES * 0 + 3),
        (lambda x: x.copy_(norch.ones(3)), "copy_.default", VALUES * 0 + 1),
        (lambda x: x.relu_(), "relu_.default", np.maximum(VALUES, 0)),
    ],
)
def test_in_place_methods_return_the_tensor_itself(log, call, name, expected):
    x = logged()
    assert call(x) is x
    assert log == [f"aten.{name}"]
    np.testing.assert_array_equal(x.elem.numpy(), expected)


def test_assigned_elements_are_written_into_what_it_stands_for(log):
    x = logged()
    x[0] = 5
    x[:, norch.tensor([0])] = 1
    assert log == ["aten.select.int", "aten.fill_.Scalar", "aten.index_put_.default"]
    assert x.elem.tolist() == [[1, 5, 5], [1, 2, 3]]


def test_it_has_a_shape_and_no_memory(log):
    x = Logged(norch.tensor(VALUES).t())
    assert (x.shape, x.stride(), x.dtype, x.is_leaf, x.data_ptr()) == ((3, 2), (1, 3), norch.float32, True, 0)
    assert str(x) == repr(x) == f"Logged({x.elem})"
    assert float(x[2, 1]) == 3.0
    assert log[-1] == "aten._local_scalar_dense.default"
    with pytest.raises(NotImplementedError, match="a Logged stands for other tensors"):
        x.numpy()


def test_gradients_are_recorded_above_the_class(log):
    a, b = np.float32([[0.5, -1.0], [2.0, 0.25]]), np.float32([[1.0, 2.0], [-0.5, 1.5]])
    x, y = logged(a, requires_grad=True), norch.tensor(b, requires_grad=True)
    loss = (x @ y).sigmoid().sum()
    assert log == ["aten.mm.default", "aten.sigmoid.default", "aten.detach.default", "aten.sum.default"]
    loss.backward()
    s = 1 / (1 + np.exp(-(a @ b)))
    np.testing.assert_allclose(x.grad.elem.numpy(), (s * (1 - s)) @ b.T, rtol=1e-5)
    np.testing.assert_allclose(y.grad.elem.numpy(), a.T @ (s * (1 - s)), rtol=1e-5)


def test_second_derivatives(log):
    x = logged(np.float32([0.5, 2.0]), requires_grad=True)
    (first,) = norch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = norch.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.elem.numpy(), [3.0, 12.0], rtol=1e-6)


class Rounded(norch.Tensor):
    """A weight kept as whole numbers and a scale: what it computes with has no derivative, so gradients pass by."""

    @staticmethod
    def __new__(cls, values, scale):
        return norch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=norch.float32)

    def __init__(self, values, scale):
        self.values, self.scale = values, scale

    def plain(self):
        return self.values.to(norch.float32) * self.scale

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with overrides.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is aten.detach.default:
            return Rounded(args[0].values, args[0].scale)
        if func is aten.t.default:
            return Rounded(args[0].values.t(), args[0].scale)
        if func in (aten.mm.default, aten.addmm.default):
            return func(*[a.plain() if isinstance(a, Rounded) else a for a in args])
        return NotImplemented


def test_a_weight_of_a_class_in_a_linear_layer():
    linear = pytest.importorskip("norch.nn").Linear(3, 2)
    weight = Rounded(norch.tensor([[1, -2, 3], [0, 4, 5]], dtype=norch.int8), 0.5)
    linear.weight = norch.nn.Parameter(weight, requires_grad=False)
    assert isinstance(linear.weight, norch.nn.Parameter)
    assert type(linear.weight) is Rounded
    assert [name for name, _ in linear.named_parameters()] == ["weight", "bias"]
    x = norch.tensor(VALUES, requires_grad=True)
    linear(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.tile([0.5, 1.0, 4.0], (2, 1)))
    with pytest.raises(TypeError, match=r"aten\.exp\.default"):
        linear.weight.exp()


def test_optimisers_step_by_its_ops(log):
    nn = pytest.importorskip("norch.nn")
    p = nn.Parameter(logged(np.float32([1.0, 2.0])))
    optimizer = norch.optim.Adam([p], lr=0.1)
    (p * p).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(p.elem.numpy(), [0.9, 1.9], rtol=1e-6)  # a first step of Adam is of length lr


def test_copies_and_pickles(log):
    x = logged(requires_grad=True)
    x.note = ["a"]
    copied = copy.deepcopy(x)
    assert (type(copied), copied.requires_grad, copied.note) == (Logged, True, ["a"])
    assert copied.note is not x.note
    assert copied.elem.data_ptr() != x.elem.data_ptr()
    file = io.BytesIO()
    norch.save({"x": x}, file)
    file.seek(0)
    loaded = norch.load(file, weights_only=False)["x"]
    assert (type(loaded), loaded.requires_grad, loaded.elem.tolist()) == (Logged, True, VALUES.tolist())
    file.seek(0)
    with pytest.raises(RefusedPickleError, match="Logged"):
        norch.load(file)
    file.seek(0)
    with norch.serialization.safe_globals([Logged]):
        loaded = norch.load(file)["x"]
    assert (type(loaded), loaded.requires_grad, loaded.elem.tolist()) == (Logged, True, VALUES.tolist())


def test_a_class_must_say_what_ops_give():
    class Silent(norch.Tensor):
        pass

    with pytest.raises(TypeError, match="Silent defines no __torch_dispatch__"):
        norch.Tensor._make_wrapper_subclass(Silent, (2,))


def test_helpers_of_pytorchs_path(log):
    _python_dispatch = pytest.importorskip("norch.utils")._python_dispatch
    x, out = logged(), logged()
    assert _python_dispatch.return_and_correct_aliasing(aten.add_.Tensor, (x, 1), {}, out) is x
    assert _python_dispatch.return_and_correct_aliasing(aten.add.Tensor, (x, 1), {}, out) is out
    assert not _python_dispatch.is_traceable_wrapper_subclass(x)


def test_what_a_program_adds_to_tensor_is_as_it_made_it(monkeypatch):
    def label(self, text):
        self.label = text
        return self

    monkeypatch.setattr(norch.Tensor, "with_label", label, raising=False)
    monkeypatch.setattr(norch.Tensor, "loud", property(lambda self: self.label.upper()), raising=False)

    class Refusing(norch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    made = norch.ones(2).as_subclass(Refusing)
    assert made.with_label("a") is made
    assert made.loud == "A"


def test_a_class_that_dispatches_is_not_asked_for_functions():
    class Scaled(norch.Tensor):
        @staticmethod
        def __new__(cls, values, scale):
            return norch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype)

        def __init__(self, values, scale):
            self.values_, self.scale = values, scale

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            args = [a.values_ * a.scale if isinstance(a, Scaled) else a for a in args]
            return func(*args, **(kwargs or {}))

    assert Scaled.__torch_function__ is overrides._disabled_torch_function_impl
    found = norch.abs(Scaled(norch.tensor([1.0, -2.0]), 3.0))
    assert type(found) is norch.Tensor
    assert found.tolist() == [3, 6]

    class Counted(Scaled):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls += 1
            return super().__torch_function__(func, types, args, kwargs or {})

    assert type(norch.abs(Counted(norch.ones(2), 1.0))) is norch.Tensor
    assert Counted.calls > 0


def test_a_class_that_dispatches_may_have_a_base_that_is_asked():
    class Quantised(norch.Tensor):
        def __init__(self, values):
            self.values_ = values

    class Stored(Quantised):
        @staticmethod
        def __new__(cls, values):
            return norch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*[a.values_ if isinstance(a, Quantised) else a for a in args], **(kwargs or {}))

    x = Stored(norch.tensor([[1.0, -2.0]]))
    assert type(x.abs() + x) is norch.Tensor
    assert (norch.ones(1, 2) - x).tolist() == [[0, 3]]
    assert norch.layer_norm(x, (2,)).shape == (1, 2)
    assert (x.shape, x.dtype, x.requires_grad, x.grad) == ((1, 2), norch.float32, False, None)
    assert type(norch.ones(2).as_subclass(Quantised).abs()) is Quantised
