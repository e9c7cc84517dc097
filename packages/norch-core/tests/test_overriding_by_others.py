"""`__torch_function__` of classes that are no tensors."""

import pytest

import norch
import norch.overrides

P = norch.arange(16.0).reshape(4, 4)


def test_a_class_that_is_no_tensor_is_asked_too():
    class Scalar:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func, types, args

    s = Scalar()
    assert norch.mean(s) == (norch.mean, (Scalar,), (s,))
    assert norch.stack([P, s])[0] is norch.stack
    assert norch.overrides.is_tensor_like(s)
    assert norch.overrides.has_torch_function((s,))


class Symbol:
    """What is no tensor and refuses all that norch's own functions do with it."""

    def __getattr__(self, name):
        raise AttributeError(name)

    def __iter__(self, *other):
        raise RuntimeError("it has no parts")

    __bool__ = __eq__ = __iter__
    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func, args


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("norch.einsum('ij->i', s)", "einsum"), ("norch.clone(s)", "clone"), ("norch.cat(s, dim=1)", "cat"),
        ("norch.stack(s)", "stack"), ("norch.cat([P, s])", "cat"), ("norch.clamp(s, min=0.0)", "clamp"),
        ("norch.clamp(P, 0.0, s)", "clamp"), ("norch.arange(s)", "arange"), ("norch.arange(0, s, 2)", "arange"),
        ("norch.relu6(s)", "relu6"), ("norch.exp(s)", "exp"), ("norch._assert(s, 'message')", "_assert"),
        ("P.reshape(s, -1)", "reshape"), ("P.view(4, s)", "reshape"),
        ("P.view(s)", "Tensor.view"), ("P.to(s)", "Tensor.to"), ("P.to(device=s)", "Tensor.to"),
        ("P[s]", "Tensor.__getitem__"), ("P[0, s]", "Tensor.__getitem__"), ("P[:s]", "Tensor.__getitem__"),
    ],
)  # fmt: skip
def test_functions_that_give_up_ask_what_is_no_tensor(call, name):
    s = Symbol()
    func, args = eval(call, {"s": s, "P": P, "norch": norch})
    expected = norch
    for part in name.split("."):
        expected = getattr(expected, part)
    assert func is expected
    assert isinstance(args, tuple)
    with pytest.raises(RuntimeError, match="no parts"):
        norch._check(s)


def test_is_complex_asks_what_is_no_tensor():
    class Numbers:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func is norch.is_complex

    assert norch.is_complex(Numbers()) is True
    with pytest.raises(TypeError, match="is_complex"):
        norch.is_complex([1j])
