"""Tensors that a Module registers: parameters, which are trained, and buffers, which are only kept."""

from __future__ import annotations

from typing import Any, ClassVar

import norch

from .complex_pairs import tensor_of


class _ParameterMeta(type):
    """The class of Parameter: of it are also the tensors of classes of one's own that were made one.

    Its module is one of `torch` where Tensor's is: by that packages such as autoray tell whose an array is.
    """

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        own: str = vars(cls)["__module__"]
        return "torch.nn.parameter" if own == __name__ and norch.Tensor.__module__ == "torch" else own

    def __instancecheck__(cls, value: Any) -> bool:
        return super().__instancecheck__(value) or (
            cls is Parameter and isinstance(value, norch.Tensor) and value.__dict__.get("_is_param", False)
        )


class Parameter(norch.Tensor, plain_results=True, metaclass=_ParameterMeta):
    """A tensor that a Module lists among its parameters when it is assigned as an attribute.

    `data`: a tensor of any shape, whose memory the parameter shares; None for an empty one. It keeps dtype and device.
    Of a subclass of Tensor it stays of that class, and is a Parameter all the same. Of complex numbers, a
    `ComplexPair`, comes the pair of a parameter of shape (..., 2), which is what a Module lists.
    Raises DTypeError for data that is not a Tensor, and for an integer or bool tensor unless `requires_grad=False`.
    """

    __slots__ = ()

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        if (parts := tensor_of(data)) is not data:
            return norch.view_as_complex(cls(parts, requires_grad))  # type: ignore[return-value]
        shared = _shared(data, cls.__name__)
        if shared.left_to is not None or (cls is Parameter and _has_class(shared)):
            shared._is_param = True  # type: ignore[attr-defined]
            return shared.requires_grad_(requires_grad)  # type: ignore[return-value]
        parameter: Parameter = shared.as_subclass(cls)
        return parameter.requires_grad_() if requires_grad else parameter  # type: ignore[return-value]

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    __str__ = __repr__


class Buffer(norch.Tensor, plain_results=True):
    """A tensor that a Module registers as a buffer when it is assigned as an attribute.

    `persistent=False` leaves it out of the module's `state_dict`.
    """

    __slots__ = ()
    persistent: bool

    def __new__(cls, data: norch.Tensor | None = None, *, persistent: bool = True) -> Buffer:
        buffer: Buffer = _shared(data, cls.__name__).as_subclass(cls)
        buffer.persistent = persistent
        return buffer


class UninitializedTensorMixin:
    """What parameters and buffers without elements as yet have in common."""

    __slots__ = ()
    cls_to_become: ClassVar[type[norch.Tensor]]

    def materialize(self, shape: tuple[int, ...], device: Any = None, dtype: Any = None) -> None:
        """Makes it one of its kind, of `shape`, its values not set, on its device and of its dtype unless given."""
        own: Any = self
        own.data = norch.empty(shape, device=device or own.device, dtype=dtype or own.dtype)
        own.__class__ = self.cls_to_become

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    __str__ = __repr__


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter without elements as yet, that an optimiser may be given already; `materialize` gives it a shape."""

    __slots__ = ()
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> UninitializedParameter:
        empty = norch.empty(0, device=device, dtype=dtype).as_subclass(cls)
        return empty.requires_grad_(requires_grad)  # type: ignore[return-value]


class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """A buffer without elements as yet; `materialize` gives it a shape."""

    __slots__ = ()
    cls_to_become = norch.Tensor

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> UninitializedBuffer:
        buffer: UninitializedBuffer = norch.empty(0, device=device, dtype=dtype).as_subclass(cls)  # type: ignore[assignment]
        buffer.persistent = persistent
        return buffer.requires_grad_(requires_grad)  # type: ignore[return-value]


def is_lazy(param: Any) -> bool:
    """Whether `param` is a parameter or buffer without a shape as yet."""
    return isinstance(param, UninitializedTensorMixin)


def _has_class(tensor: norch.Tensor) -> bool:
    """Whether a tensor is of a class of one's own, whose results are of it too."""
    return type(tensor) is not norch.Tensor and norch.overrides.has_torch_function_unary(tensor)


def _shared(data: norch.Tensor | None, title: str) -> norch.Tensor:
    if data is None:
        return norch.empty(0)
    if not isinstance(data, norch.Tensor):
        raise norch.DTypeError(f"{title}(): data must be a Tensor, got {type(data).__name__}")
    return data.detach()


def optional_parameter(wanted: bool, shape: tuple[int, ...], device: Any, dtype: Any) -> Parameter | None:
    """A parameter of that shape with any values, or None where it is not wanted."""
    return Parameter(norch.empty(shape, device=device, dtype=dtype)) if wanted else None
