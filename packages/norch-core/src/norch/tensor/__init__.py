"""The Tensor class: what a tensor is made of (base.py), and the ops as its methods (op_methods.py)."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from .. import overriding, overriding_methods
from ..device import Device
from ..dispatch.plan import SCALARS
from ..dtype import as_dtype, get_default_dtype, scalar_dtype
from ..ops.creation import empty_spec, fill_spec, finish, spec_for
from ..ops.from_data import array_to_tensor, as_tensor
from ..ops.registry import FUNCTIONS
from ..spec import Size
from ..tensor_base import TensorBase, make_tensor
from .base import GraphMethods
from .op_methods import OpMethods
from .properties import Properties
from .storage import Storage, TypedStorage, UntypedStorage

__all__ = ["Storage", "Tensor", "TensorBase", "TypedStorage", "UntypedStorage"]


class Tensor(GraphMethods, OpMethods, Properties, result_of_ops=True):
    """A strided array of one dtype on one device, which autograd can differentiate through.

    `Tensor(data)` makes a tensor of the default dtype from nested lists or an array; `Tensor(2, 3)` and
    `Tensor(x.shape)` an uninitialised one of that shape. `Tensor(x)` of a tensor is a view of it, and keeps its dtype,
    unless given another dtype or device. `norch.tensor` keeps the dtype of its data.
    """

    __slots__ = ()
    __array_priority__ = 1000  # so that `ndarray + tensor` is the tensor's to answer

    def __new__(cls, *data: Any, requires_grad: bool = False, device: Any = None, dtype: Any = None) -> Tensor:
        if len(data) == 1 and isinstance(data[0], Tensor) and _fits(data[0], dtype, device):
            with overriding.DisableTorchFunctionSubclass():
                out = data[0][...]
        elif len(data) == 1 and isinstance(data[0], Size):
            out = empty_spec(spec_for(tuple(data[0]), dtype, device, "Tensor"))
        elif len(data) == 1 and not isinstance(data[0], int):
            out = as_tensor(data[0], dtype or get_default_dtype(), device, copy=True)
        else:
            out = empty_spec(spec_for(data or (0,), dtype, device, "Tensor"))
        if cls is not Tensor:
            out = out.as_subclass(cls)
        return finish(out, requires_grad)

    def as_subclass(self, cls: type[Any]) -> Any:
        """The same tensor as an object of `cls`, a subclass of Tensor."""
        return make_tensor(overriding.plain_spec(self), self.buffer, self.offset, self.node, self.base, cls)

    @staticmethod
    def _make_subclass(cls: type[Any], data: Tensor, require_grad: bool = False) -> Any:
        """What PyTorch's subclasses make themselves of: an object of `cls` on the memory of `data`, a leaf."""
        with overriding.DisableTorchFunctionSubclass():
            return data.detach().as_subclass(cls).requires_grad_(require_grad)

    @staticmethod
    def _make_wrapper_subclass(cls: type[Any], size: Any, *args: Any, **kwargs: Any) -> Any:
        """An object of `cls`, a subclass with `__torch_dispatch__`, without memory: it stands for others.

        `(cls, size, strides=None, storage_offset=None, memory_format=None, dtype=None, layout=None, device=None,
        pin_memory=False, requires_grad=False)`. Raises TypeError where `cls` defines no `__torch_dispatch__`.
        """
        return import_module("norch.compat.wrapper_subclasses").make(cls, size, *args, **kwargs)

    def __init_subclass__(cls, plain_results: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        default = Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
        dispatches = hasattr(cls, "__torch_dispatch__")
        if plain_results or (dispatches and getattr(cls.__torch_function__, "__func__", None) is default):
            cls.__torch_function__ = overriding.disabled  # type: ignore[method-assign]
        if overriding.defines(cls):
            overriding_methods.prepare(cls, Tensor)
        elif hasattr(cls, "_overrides"):  # of a base, whose methods ask
            cls._overrides = False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """`func(*args, **kwargs)`, tensors in its result as objects of this class, which a subclass may override.

        types: the classes of arguments that define it. NotImplemented where one is no base of this class.
        """
        for kind in types:
            if kind is not cls and not issubclass(cls, kind):
                return NotImplemented
        found = overriding.disabled(func, types, args, kwargs)
        if func in _unwrapped():
            return found
        if type(found) is Tensor:
            return found.as_subclass(cls)
        return overriding.disabled(overriding_methods.convert, types, (found, cls))

    @staticmethod
    def _scalar(value: bool | int | float) -> Tensor:
        """A Python scalar as a 0-d tensor."""
        return fill_spec(spec_for((), scalar_dtype(type(value)), None, "tensor"), value)

    @staticmethod
    def _from_array(value: Any) -> Any:
        """What a binary op makes of an operand that is not a tensor: an array's tensor, or NotImplemented."""
        import numpy as np

        if isinstance(value, np.ndarray):
            return array_to_tensor(value, None, False)
        if isinstance(value, np.generic):
            scalar = value.item()
            return scalar if type(scalar) in SCALARS else NotImplemented
        return NotImplemented

    @staticmethod
    def _as_in_numpy(op: str, a: Any, b: Any) -> tuple[Any, Any]:
        """Two operands, of which one was an array, in the dtype of NumPy's result: PyTorch leaves these to NumPy."""
        import numpy as np

        if not all(isinstance(x, Tensor) and not x.spec.dtype.is_foreign for x in (a, b)):
            return a, b
        kind = np.result_type(a.spec.dtype.numpy, b.spec.dtype.numpy)
        if op == "div" and kind.kind in "biu":
            kind = np.dtype(np.float64)
        return a.to(as_dtype(kind)), b.to(as_dtype(kind))

    # A subclass of one's own gives `tensor_contents`, what stands for the values; most take no argument.
    def __repr__(self, *args: Any, **kwargs: Any) -> str:
        from .printing import tensor_repr

        return tensor_repr(self, *args, **kwargs)


def _fits(tensor: Tensor, dtype: Any, device: Any) -> bool:
    return dtype in (None, tensor.spec.dtype) and (device is None or Device(device) == tensor.spec.device)


@cache
def _unwrapped() -> frozenset[Any]:
    """Getters whose results are tensors of a class of their own."""
    return frozenset({Tensor.grad.__get__})


overriding.FUNCTIONS = FUNCTIONS
