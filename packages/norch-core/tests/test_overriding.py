"""`__torch_function__`: classes that say themselves what functions give for their objects."""

import copy
import pickle
from inspect import signature

import numpy as np
import pytest

import norch
import norch.overrides
from norch import Tensor
from norch._C import DisableTorchFunctionSubclass, _disabled_torch_function_impl

asked: list = []


class Noted(Tensor):
    """A tensor that keeps a note, and lists what it is asked for."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        asked.append(func)
        found = super().__torch_function__(func, types, args, kwargs)
        if isinstance(found, cls) and not hasattr(found, "note"):
            found.note = next((x.note for x in args if isinstance(x, cls) and hasattr(x, "note")), None)
        return found


def noted(*shape):
    asked.clear()
    out = norch.arange(float(np.prod(shape, dtype=int))).reshape(shape).as_subclass(Noted)
    out.note = "kept"
    return out


P = norch.arange(16.0).reshape(4, 4)

CALLS = {
    "x + 1": "add", "1 + x": "add", "x + P": "add", "P + x": "add", "P - x": "sub", "x * P": "mul",
    "P / (x + 1)": "div",
    "x @ P": "matmul", "P @ x": "matmul", "x % 3": "remainder", "x ** 2": "pow", "-x": "neg", "abs(x)": "abs",
    "x < 3": "lt", "x == P": "__eq__", "x[0]": "__getitem__", "x[1:, 0]": "__getitem__", "x.sum()": "sum",
    "x.softmax(0)": "softmax", "x.reshape(2, 8)": "reshape", "x.clone()": "clone", "x.detach()": "detach",
    "x.to(norch.float64)": "to", "x.requires_grad_()": "requires_grad_", "x.permute(1, 0)": "permute",
    "x.new_zeros(2)": "new_zeros", "x.add_(1)": "add_",
}  # fmt: skip


@pytest.mark.parametrize(("call", "name"), CALLS.items())
def test_methods_and_operators_ask_the_class(call, name):
    x = noted(4, 4)
    found = eval(call, {"x": x, "P": P, "norch": norch, "Tensor": Tensor})
    assert asked[-1] is getattr(Tensor, name)
    assert type(found) is Noted
    assert found.note == "kept"
    plain = x.as_subclass(Tensor)
    assert type(plain) is Tensor
    if not call.startswith(("x.add_", "x.requires")):
        expected = eval(call, {"x": plain, "P": P, "norch": norch, "Tensor": Tensor})
        assert norch.equal(found.as_subclass(Tensor), expected)


FUNCTIONS = {
    "norch.add(x, 1)": "add", "norch.add(P, x, alpha=2)": "add", "norch.matmul(x, P)": "matmul",
    "norch.stack([P, x])": "stack", "norch.cat((x, x), 1)": "cat", "norch.where(P > 2, x, P)": "where",
    "norch.softmax(x, 0)": "softmax", "norch.zeros_like(x)": "zeros_like", "norch.exp(x)": "exp",
    "norch.sum(x, axis=0)": "sum", "norch.flip(x, [0])": "flip", "norch.pad(x, (1, 1))": "pad",
    "norch.take_along_dim(x, P.long() // 4, 1)": "take_along_dim", "norch.outer(x[0], x[1])": "outer",
    "norch.clamp(x, 1, 3)": "clamp", "norch.relu(x)": "relu",
}  # fmt: skip


@pytest.mark.parametrize(("call", "name"), FUNCTIONS.items())
def test_functions_ask_the_class_once(call, name):
    x = noted(4, 4)
    found = eval(call, {"x": x, "P": P, "norch": norch})
    assert [f for f in asked if f is not Tensor.__getitem__] == [getattr(norch, name)]
    assert type(found) is Noted
    expected = eval(call, {"x": x.as_subclass(Tensor), "P": P, "norch": norch})
    assert norch.equal(found.as_subclass(Tensor), expected)


def test_attributes_ask_the_class_by_their_getters_and_setters():
    x = noted(2, 3)
    assert x.shape == (2, 3)
    assert asked[-1] == Tensor.shape.__get__
    assert type(x.T) is Noted
    x.requires_grad = True
    assert asked[-1] == Tensor.requires_grad.__set__
    assert x.as_subclass(Tensor).requires_grad


def test_results_in_tuples_are_converted_and_others_left():
    x = noted(4, 4)
    assert all(type(part) is Noted for part in x.split(2))
    assert {type(part) for part in norch.max(x, dim=0)} == {Noted}
    assert type(x.max(dim=0)).__name__ == "ValuesIndices"
    assert type(x.size()) is norch.Size
    assert x.sum().item() == 120.0
    assert [type(row) for row in x] == [Noted] * 4
    assert len(x) == 4


def test_norch_tensor_gives_a_plain_one_and_as_tensor_the_same():
    x = noted(2)
    assert type(norch.tensor(x)) is Tensor
    assert norch.as_tensor(x) is x
    assert not asked


def test_a_function_asks_for_itself_not_for_its_parts():
    x = noted(1, 1, 4, 4)
    assert type(norch.interpolate(x, scale_factor=2)) is Noted
    assert asked == [norch.interpolate]


def test_a_function_and_the_method_of_its_name_are_told_apart():
    for name in ("unbind", "sum", "flip", "split", "max"):
        assert getattr(norch, name) is not getattr(Tensor, name)
    x = noted(2, 2)
    norch.unbind(x)
    x.unbind()
    Tensor.unbind(x)
    assert asked == [norch.unbind, Tensor.unbind, Tensor.unbind]


def test_within_disable_nothing_is_asked():
    x = noted(2, 2)
    with DisableTorchFunctionSubclass():
        assert type(x + 1) is Tensor
        assert x.shape == (2, 2)
        assert not norch.overrides.has_torch_function((x,))
    assert not asked
    assert norch.overrides.has_torch_function((P, x))
    assert not norch.overrides.has_torch_function((P, 1))


@pytest.mark.parametrize("name", "view float int bool bfloat16 type where".split())
def test_methods_have_pytorchs_names_in_whatever_file_they_are(name):
    args = {"view": (-1,), "type": (norch.float64,), "where": (P > 2, P)}.get(name, ())
    getattr(noted(4, 4), name)(*args)
    assert asked[-1].__name__ == name


def test_methods_of_a_class_call_tensors_by_super():
    class Guarded(Noted):
        def __getitem__(self, index):
            return super().__getitem__(index)

        def __setitem__(self, index, value):
            super().__setitem__(index, value * 2)

        def detach(self):
            return super().detach()

        def split(self, *args):
            return super().split(*args)

    x = norch.arange(6.0).reshape(2, 3).as_subclass(Guarded)
    asked.clear()
    for found in (x[1], x[0, 1], x[:, 1], x[norch.tensor([0])], x.detach(), x.split(1)[0]):
        assert type(found) is Guarded
    assert asked == [Tensor.__getitem__] * 4 + [Tensor.detach, Tensor.split]
    x[0] = norch.ones(3)
    assert x.tolist() == [[2, 2, 2], [3, 4, 5]]
    assert type(x).__mro__[-4:] == Tensor.__mro__[-4:]


def test_transforms_to_complex_numbers_and_back_keep_the_class():
    x = noted(2, 4)
    both = norch.fft.fft(x) * norch.fft.fft(P[:2])
    assert type(both.real) is type(both.abs()) is type(norch.fft.ifft(both).real) is Noted
    expected = np.fft.ifft(np.fft.fft(np.arange(8.0).reshape(2, 4)) ** 2).real
    assert np.allclose(norch.fft.irfft(norch.fft.rfft(x) ** 2).numpy(), expected)
    z = norch.polar(P, P).as_subclass(Noted)
    assert type(z.imag) is Noted
    z.unit = "m"
    assert z.unit == vars(z)["unit"] == "m"

    class Sized(Noted):
        length = property(lambda self: self.abs().sum().item())

        def turned(self):
            return self * 1j

    z = norch.polar(norch.ones(3), norch.ones(3)).as_subclass(Sized)
    assert z.length == pytest.approx(3.0)
    assert type(z.turned().real) is Sized
    assert z.turned().length == pytest.approx(3.0)


def test_a_class_with_the_disabled_implementation_is_asked_nothing():
    class Still(Tensor):
        __torch_function__ = _disabled_torch_function_impl

    x = P.as_subclass(Still)
    assert type(x + 1) is Tensor
    assert not norch.overrides.has_torch_function((x,))


def test_gradients_pass_through():
    x = noted(3).requires_grad_()
    w = norch.ones(3, requires_grad=True)
    y = (x * w * x).sum()
    assert type(y) is Noted
    asked.clear()
    y.backward()
    assert asked == [Tensor.backward]
    assert w.grad.tolist() == [0.0, 1.0, 4.0]
    assert x.grad.tolist() == [0.0, 2.0, 4.0]


def test_what_is_asked_for_may_be_refused_or_handled():
    class Picky(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "mean" if func is norch.mean else NotImplemented

    x = P.as_subclass(Picky)
    assert norch.mean(x) == "mean"
    with pytest.raises(TypeError, match=r"no implementation found for .*exp.*Picky"):
        norch.exp(x)
    assert (x == object()) is False


def test_subclasses_are_asked_before_their_bases():
    order = []

    class Base(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            order.append((cls, types))
            return super().__torch_function__(func, types, args, kwargs) if cls is Base else NotImplemented

    class Derived(Base):
        pass

    base, derived = P.as_subclass(Base), P.as_subclass(Derived)
    with pytest.raises(TypeError, match="no implementation"):
        norch.add(base, derived)
    assert order == [(Derived, (Derived, Base)), (Base, (Derived, Base))]


def test_functions_of_ones_own_ask_by_handle_torch_function():
    def double(x):
        if norch.overrides.has_torch_function_unary(x):
            return norch.overrides.handle_torch_function(double, (x,), x)
        return x * 2

    @norch.overrides.wrap_torch_function(lambda x: (x,))
    def triple(x):
        return x * 3

    x = noted(2)
    assert type(double(x)) is Noted
    assert type(triple(x)) is Noted
    assert asked == [double, triple]
    assert norch.overrides.resolve_name(Tensor.add) == "torch.Tensor.add"


def test_methods_that_a_class_has_of_its_own_are_for_its_users_alone():
    class Own(Noted):
        def new_empty(self, size, dtype=None):
            raise AssertionError("called by norch itself")

        def clone(self):
            return "own"

        @property
        def shape(self):
            with DisableTorchFunctionSubclass():
                return super().shape

    x = (P > 3).as_subclass(Own)
    assert norch.nonzero(x).shape == (12, 2)
    assert x.clone() == "own"
    with pytest.raises(AssertionError):
        x.new_empty(2)


def test_copies_and_pickles_keep_what_was_put_on_them():
    x = noted(2, 2)
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), copy.copy(x)):
        assert type(other) is Noted
        assert other.note == "kept"
        assert norch.equal(other.as_subclass(Tensor), x.as_subclass(Tensor))
    assert repr(x).startswith("Noted([[0")


def test_arrays_and_saved_files_have_its_values(tmp_path):
    x = noted(2, 2)
    assert np.asarray(x).tolist() == x.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    norch.save({"x": x}, tmp_path / "x.safetensors")
    assert norch.load(tmp_path / "x.safetensors")["x"].tolist() == x.tolist()


def test_specs_of_results_are_ordinary():
    x = noted(4, 4)
    plain = [x.as_subclass(Tensor), norch.tensor(x)]
    for one in (*plain, P + x.as_subclass(Tensor)):
        assert type(one.spec).__name__ == "Spec"
    with DisableTorchFunctionSubclass():
        assert x.spec is P.spec


def test_in_place_into_a_plain_tensor():
    x = noted(4, 4)
    target = norch.zeros(4, 4)
    target.copy_(x)
    target += x
    target[0] = x[0]
    assert type(target) is Tensor
    assert target.tolist() == [[0.0, 1.0, 2.0, 3.0], *(2 * P[1:]).tolist()]


def test_functions_that_classes_are_asked_for():
    found = norch.overrides.get_testing_overrides()
    for function in (norch.add, norch.dot, norch.linalg.svd, norch.Tensor.add_):
        assert found[function](1, 2, three=3) == -1
    assert list(signature(found[norch.dot]).parameters) == list(signature(norch.dot).parameters)
    assert norch.is_tensor not in found
