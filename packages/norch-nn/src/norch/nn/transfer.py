"""Moving a module's tensors to another device or dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import norch
from norch import switches

from .complex_pairs import make_complex
from .parameter import is_lazy

if TYPE_CHECKING:
    from .module import Module

M = TypeVar("M", bound="Movable")


class Movable:
    """The part of Module that changes where its tensors are, and of what dtype."""

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Moves parameters and buffers: `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`, also by keyword.

        A dtype, floating or complex, is for the floating ones. memory_format: `norch.channels_last` is for those of 4
        dims, `norch.channels_last_3d` for those of 5, `norch.contiguous_format` for both. The parameters stay the same
        objects, so that an optimizer keeps them. Returns the module. Raises DeviceError for a device that cannot be
        used. TypeError for another memory_format.
        """
        made_complex = [v for v in (*args, kwargs.get("dtype")) if getattr(v, "is_complex", None) is True]
        for dtype in made_complex:
            args = tuple([dtype.parts if v is dtype else v for v in args])
            kwargs = {name: dtype.parts if v is dtype else v for name, v in kwargs.items()}
        device, dtype = destination(args, kwargs)
        form = kwargs.get("memory_format")
        if not isinstance(form, norch.memory_format | None):
            raise TypeError(f"Module.to(): memory_format must be one of norch's, got {form!r}")
        out = move(self, device, dtype, form)
        if made_complex:
            make_complex(cast("Module", out))
        return out

    def _apply(self, fn: Callable[[norch.Tensor], norch.Tensor], recurse: bool = True) -> Self:
        """What all of these call, for subclasses that move tensors of their own too, and then what this one does.

        fn: makes of a tensor what it becomes. recurse: of the modules below it too.
        """
        once = fn if isinstance(fn, _Once) else _Once(fn)
        module = cast("Module", self)
        for child in module.children() if recurse else ():
            child._apply(once)
        _convert_own(module, once)
        return self

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Gives parameters and buffers memory on `device`, of any values. Returns the module.

        recurse: those of modules below it too.
        """
        convert(cast("Module", self), lambda t: norch.empty_like(t, device=device), recurse)
        return self

    def share_memory(self) -> Self:
        """Moves parameters and buffers to memory that processes share: `Tensor.share_memory_`. Returns the module.

        Raises DeviceError for those that are not on the CPU.
        """
        module = cast("Module", self)
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.share_memory_()
        return self

    def type(self, dst_type: Any) -> Self:
        """Converts all parameters and buffers to `dst_type`: a dtype, an old tensor type or its name. Returns the
        module. Raises DTypeError for others.
        """
        convert(cast("Module", self), lambda t: t.type(dst_type))
        return self

    def cpu(self) -> Self:
        """`to("cpu")`, as the following by `_apply` and not by `to`, which a class may have as its own."""
        return move(self, norch.Device("cpu"))

    def cuda(self, device: int | str | norch.Device | None = None) -> Self:
        """`to` a CUDA device, the first unless given."""
        return move(self, norch.Device(f"cuda:{device}" if isinstance(device, int) else device or "cuda"))

    def float(self) -> Self:
        """`to(norch.float32)`."""
        return move(self, dtype=norch.float32)

    def double(self) -> Self:
        """`to(norch.float64)`."""
        return move(self, dtype=norch.float64)

    def half(self) -> Self:
        """`to(norch.float16)`."""
        return move(self, dtype=norch.float16)

    def bfloat16(self) -> Self:
        """`to(norch.bfloat16)`."""
        return move(self, dtype=norch.bfloat16)


class _Once:
    """What is made of each tensor, once where modules share it."""

    def __init__(self, function: Callable[[norch.Tensor], norch.Tensor]) -> None:
        self._function = function
        self.parameters: dict[int, norch.Tensor] = {}
        self.buffers: dict[int, tuple[norch.Tensor, norch.Tensor]] = {}

    def __call__(self, tensor: norch.Tensor) -> norch.Tensor:
        return self._function(tensor)


def convert(module: Module, function: Callable[[norch.Tensor], norch.Tensor], recurse: bool = True) -> None:
    """Gives each parameter the values, and each buffer the tensor, that `function` makes of it, by `Module._apply`."""
    once = _Once(function)
    if recurse:
        module._apply(once)
    else:
        module._apply(once, recurse=False)


def move(
    module: M,
    device: norch.Device | None = None,
    dtype: norch.DType | None = None,
    form: norch.memory_format | None = None,
) -> M:
    """Moves parameters and buffers as `Module.to` does, and returns the module. Raises MetaError without values."""
    dims = {norch.channels_last: (4,), norch.channels_last_3d: (5,)}.get(form, (4, 5))

    def moved(tensor: norch.Tensor) -> norch.Tensor:
        if device is not None and tensor.is_meta and device.type != "meta":
            raise norch.MetaError("Module.to")
        found = tensor.to(device, dtype if tensor.is_floating_point() else None)
        return found.to(memory_format=form) if form is not None and tensor.ndim in dims else found

    convert(cast("Module", module), moved)
    return module


def _convert_own(module: Module, once: _Once) -> None:
    for name in module._parameter_names:
        parameter = module.__dict__[name]
        if parameter is None or id(parameter) in once.parameters:
            continue
        once.parameters[id(parameter)] = parameter
        grad = parameter.grad
        parameter.grad = None
        if type(parameter).to is norch.Tensor.to:
            parameter.data = once(parameter.data)
        else:  # of a class that has what it becomes elsewhere in its hands
            with norch.no_grad():
                made = once(parameter)
            if made is not parameter:
                parameter.data = made
        if grad is not None:
            parameter.grad = once(grad.detach())
    for name in module._buffer_names:
        buffer = module.__dict__[name]
        if buffer is not None:
            if id(buffer) not in once.buffers:
                once.buffers[id(buffer)] = (buffer, once(buffer))
            made = once.buffers[id(buffer)][1]
            if is_lazy(buffer):
                made = made.as_subclass(type(buffer))
            if made is not buffer:
                switches.replaced(module, name)
            module.__dict__[name] = made


def destination(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[norch.Device | None, norch.DType | None]:
    """The device and the dtype that the arguments of `Module.to` ask for; None to leave as it is."""
    unknown = set(kwargs) - {"device", "dtype", "tensor", "non_blocking", "memory_format"}
    if unknown:
        raise TypeError(f"Module.to(): got unexpected arguments {', '.join(sorted(unknown))}")
    device, dtype = None, None
    for value in (*args, kwargs.get("tensor"), kwargs.get("device"), kwargs.get("dtype")):
        if isinstance(value, norch.DType):
            dtype = value
        elif isinstance(value, str | norch.Device) or type(value) is int:
            device = norch.Device(value)
        elif isinstance(value, norch.Tensor):
            device, dtype = value.device, value.dtype
        elif value is not None and not isinstance(value, bool):
            raise norch.DTypeError(f"Module.to(): expected a device, a dtype or a tensor, got {value!r}")
    if dtype is not None and not dtype.is_floating_point:
        raise norch.DTypeError(f"Module.to(): only accepts floating dtypes, got {dtype}")
    return device, dtype


def _parse_to(*args: Any, **kwargs: Any) -> tuple[norch.Device | None, norch.DType | None, bool, Any]:
    """What the arguments of `Module.to` ask for: device, dtype, non_blocking, memory_format."""
    return *destination(args, kwargs), bool(kwargs.get("non_blocking")), kwargs.get("memory_format")
