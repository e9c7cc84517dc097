"""What files of weights name: tensors, storages, containers, numbers, dtypes. All else is refused."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ...device import Device
from ...dtype import ALL, complex32, complex64, complex128
from ...errors import DTypeError, RefusedPickleError
from ...memory_formats import sparse_coo, sparse_csc, sparse_csr, strided
from ...spec import Size
from ...tensor import Tensor
from ..allowed import allowed, allowed_in, is_allowed, is_never_safe
from ..attributes import as_kind, set_attributes
from ..tree import made_sparse
from .tensors import LACKED, STORAGES, UNTYPED, device_at, lacked, rebuild, rebuild_meta

if TYPE_CHECKING:
    from .machine import Machine

Load = Callable[[Any], Tensor]
_ROOT = __name__.partition(".")[0]

# --- Calls that files make, each with the machine before the arguments ----------------------------------------------


def _tensor_v2(machine: Machine, storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Any:
    return _with_bits(machine, rebuild(storage, offset, size, stride, rest[0] if rest else False), rest[2:])


def _tensor_v3(
    machine: Machine, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, dtype: Any,
    metadata: Any = None,
) -> Any:  # fmt: skip
    return _with_bits(machine, rebuild(storage, offset, size, stride, requires_grad, dtype), (metadata,))


def _with_bits(machine: Machine, value: Any, metadata: Any) -> Any:
    """A tensor of which PyTorch says that it is the conjugate of what is stored, or its negative."""
    for bits in metadata:
        if isinstance(bits, dict) and (bits.get("conj") or bits.get("neg")):
            if machine.storages_follow:
                raise machine.fail("it holds a conjugate, which is read from zip files only; save its resolve_conj()")
            value = value.conj() if bits.get("conj") else value
            value = -value if bits.get("neg") else value
    return value


def parameter_class() -> type[Tensor] | None:
    """norch-nn's Parameter, where that is installed."""
    try:
        found: type[Tensor] = import_module(f"{_ROOT}.nn.parameter").Parameter
    except ModuleNotFoundError:
        return None
    return found


def _parameter(machine: Machine, data: Any, requires_grad: Any = True, *rest: Any) -> Tensor:
    parts = getattr(data, "pair", data)
    if not isinstance(parts, Tensor) or type(requires_grad) is not bool:
        raise ValueError("a parameter is not a tensor")
    kind = parameter_class()
    if requires_grad and not parts.is_floating_point():
        raise ValueError("a parameter of integers requires a gradient")
    if kind is None:
        return data.detach().requires_grad_(requires_grad)  # type: ignore[no-any-return]
    return kind(data, requires_grad)


def _parameter_with_state(machine: Machine, data: Any, requires_grad: Any, hooks: Any, state: Any) -> Tensor:
    made = _parameter(machine, data, requires_grad)
    set_attributes(made, state)
    return made


def _from_type(machine: Machine, function: Any, kind: Any, args: Any, state: Any) -> Any:
    """A tensor of a class, with attributes."""
    call = getattr(function, "func", None) if isinstance(function, partial) else _CALLS.get(id(function))
    if call is None or call not in _REBUILDING:
        raise ValueError("a tensor is made by another function")
    out = call(machine, *args)
    if not isinstance(out, Tensor):  # complex numbers
        return _parameter(machine, out, out.requires_grad) if kind is parameter_class() else out
    made = as_kind(out, kind)
    set_attributes(made, state)
    return made


def _subclass(machine: Machine, kind: Any, data: Any, requires_grad: Any) -> Tensor:
    """A tensor of norch's own files."""
    return _parameter(machine, data, requires_grad) if kind is parameter_class() else as_kind(data, kind)


def _declared(machine: Machine, home: Any, name: Any) -> Any:
    """A function of norch that the user declared safe."""
    found = allowed_in(home, name)
    if found is None:
        raise refusal(machine.fail, f"{home!s:.80}.{name!s:.80}")
    return found


def _size(machine: Machine, sizes: Any = ()) -> Size:
    machine.spend(len(sizes))
    if not all(type(n) is int for n in sizes):
        raise ValueError("a size is not an int")
    return Size(sizes)


def _device(machine: Machine, kind: Any, index: Any = None) -> Device:
    if type(kind) is not str or not (index is None or type(index) is int):
        raise ValueError("no device")
    return device_at(kind if index is None else f"{kind}:{index}")


def _layout(machine: Machine, name: Any) -> Any:
    if name not in _LAYOUTS:
        raise machine.fail(f"it holds a tensor of layout {name!r:.40}; save its to_dense()")
    return _LAYOUTS[name]


_LAYOUTS = {f"torch.{layout.__reduce__()}": layout for layout in (strided, sparse_coo, sparse_csr, sparse_csc)}


def _sparse(machine: Machine, layout: Any, parts: Any) -> Tensor:
    if machine.storages_follow:
        raise machine.fail("it holds a sparse tensor, which is read from zip files only; save it again with PyTorch")
    count = 2 if layout is sparse_coo else 3
    *given, size = parts[: count + 1]
    name = next((name for name, known in _LAYOUTS.items() if known is layout), "").removeprefix("torch.")
    return made_sparse(name, given, size, count == 2 and True in parts[3:])


def _encode(machine: Machine, text: Any, encoding: Any = "latin1") -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise ValueError("no bytes")
    machine.spend(len(text))
    return text.encode(encoding)


def _copied(kind: Callable[[Any], Any], keys: bool) -> Callable[..., Any]:
    """A container made of one that was read."""

    def make(machine: Machine, items: Any = ()) -> Any:
        if not isinstance(items, list | tuple | dict | set | frozenset | bytes | bytearray):
            raise ValueError(f"{kind.__name__} of a {type(items).__name__}")
        machine.spend(len(items))
        if keys:
            machine.check_keys(items)
        return kind(items)

    return make


def _ordered_dict(machine: Machine, items: Any = ()) -> OrderedDict[Any, Any]:
    """Of pairs: Python 2 wrote them so."""
    machine.spend(len(items))
    pairs = list(items.items()) if isinstance(items, dict) else [(key, value) for key, value in items]
    machine.check_keys([key for key, _ in pairs])
    return OrderedDict(pairs)


def _default_dict(machine: Machine, factory: Any = None, items: Any = ()) -> defaultdict[Any, Any]:
    if factory is not None and factory not in (list, dict, set, int, float, str, tuple, bool, OrderedDict):
        raise ValueError("a defaultdict of another factory")
    return defaultdict(factory, _ordered_dict(machine, items))


def _number(kind: Callable[..., Any]) -> Callable[..., Any]:
    def make(machine: Machine, *args: Any) -> Any:
        if len(args) > 2 or not all(type(a) in (int, float, bool) for a in args):
            raise ValueError(f"{kind.__name__} of something else than numbers")
        return kind(*args)

    return make


def _meta_tensor(machine: Machine, dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    return rebuild_meta(dtype, size, stride, requires_grad)


def _refuse_call(what: str, instead: str) -> Callable[..., Any]:
    def refuse(machine: Machine, *args: Any) -> Any:
        raise machine.fail(f"it holds {what}; {instead}")

    return refuse


# --- NumPy's --------------------------------------------------------------------------------------------------------


def _numpy_dtype(machine: Machine, code: Any, align: Any = False, copy: Any = True) -> np.dtype[Any]:
    code = code.decode("ascii") if isinstance(code, bytes) else code
    found = np.dtype(code, False, True) if type(code) is str and len(code) <= 4 else None
    if found is None or found.kind not in "biufc":
        raise machine.fail(f"it holds a NumPy array of {code!r:.40}, where only numbers are read")
    return found


def _raw(data: Any) -> bytes:
    return data.encode("utf-8") if isinstance(data, str) else bytes(data)


def _numpy_new(machine: Machine, kind: Any, shape: Any = None, code: Any = None) -> np.ndarray[Any, Any]:
    if kind is not np.ndarray:
        raise ValueError("a NumPy array is of another class")
    return np.zeros(0, np.int8)


def _numpy_array(data: bytes, dtype: Any, shape: Any) -> int:
    """Checks that the data are those of an array; gives their size."""
    sizes = (shape,) if type(shape) is int else shape
    if not isinstance(dtype, np.dtype) or not all(type(n) is int and 0 <= n < 2**48 for n in sizes) or len(sizes) > 32:
        raise ValueError("a NumPy array has no dtype or shape")
    count = 1
    for n in sizes:
        count *= n
    if count * dtype.itemsize != len(data):
        raise ValueError(f"a NumPy array of shape {sizes!r:.80} has {len(data)} bytes")
    return len(data)


def _numpy_scalar(machine: Machine, dtype: Any, data: Any = b"") -> Any:
    raw = _raw(data)
    _numpy_array(raw, dtype, ())
    return np.frombuffer(raw, dtype)[0]


def _numpy_from_buffer(machine: Machine, data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray[Any, Any]:
    raw = _raw(data)
    machine.spend(_numpy_array(raw, dtype, shape))
    return np.frombuffer(raw, dtype).reshape(shape, order="F" if order == "F" else "C").copy("K")


def _build_array(machine: Machine, array: np.ndarray[Any, Any], state: Any) -> None:
    *_, shape, dtype, fortran, data = state
    raw = _raw(data)
    machine.spend(_numpy_array(raw, dtype, shape))
    array.__setstate__((1, shape, dtype, fortran is True, raw))  # type: ignore[arg-type]


def _build_dtype(machine: Machine, dtype: np.dtype[Any], state: Any) -> None:
    if state[1] not in ("<", ">", "|", "=") or dtype.isbuiltin == 1:
        raise ValueError("a NumPy dtype has no byte order")
    if dtype.itemsize > 1:
        dtype.__setstate__((3, state[1], None, None, None, -1, -1, 0))  # type: ignore[attr-defined]


# --- The tables -----------------------------------------------------------------------------------------------------


class _Function:
    """Stands for a function that only files call."""


def _functions(**calls: Callable[..., Any]) -> dict[str, tuple[Any, Callable[..., Any]]]:
    return {name: (_Function(), call) for name, call in calls.items()}


_WRITE_IT = "where PyTorch is installed, save its dequantize()"
KNOWN: dict[str, tuple[Any, Callable[..., Any] | None]] = {
    **{
        f"torch._utils.{name}": pair
        for name, pair in _functions(
            _rebuild_tensor=_tensor_v2,
            _rebuild_tensor_v2=_tensor_v2,
            _rebuild_tensor_v3=_tensor_v3,
            _rebuild_parameter=_parameter,
            _rebuild_parameter_with_state=_parameter_with_state,
            _rebuild_qtensor=_refuse_call("a quantised tensor", _WRITE_IT),
            _rebuild_sparse_tensor=_sparse,
            _rebuild_meta_tensor_no_storage=_meta_tensor,
            _rebuild_nested_tensor=_refuse_call("a nested tensor", "where PyTorch is installed, save its unbind()"),
        ).items()
    },
    "torch._tensor._rebuild_from_type_v2": (_Function(), _from_type),
    "torch.Tensor": (Tensor, None),
    "torch.Size": (Size, _size),
    "torch.device": (_Function(), _device),
    "torch.serialization._get_layout": (_Function(), _layout),
    "torch.strided": (strided, None),
    f"{_ROOT}.spec.Size": (Size, _size),
    f"{_ROOT}.device.Device": (Device, _device),
    f"{_ROOT}.serialization.objects.make_subclass": (_Function(), _subclass),
    f"{_ROOT}.serialization.objects.find": (_Function(), _declared),
    **{f"{_ROOT}.dtype.{dtype.__reduce__()}": (dtype, None) for dtype in ALL},
    "_codecs.encode": (_Function(), _encode),
    "collections.OrderedDict": (OrderedDict, _ordered_dict),
    "collections.Counter": (Counter, _copied(Counter, True)),
    "collections.defaultdict": (defaultdict, _default_dict),
    "builtins.list": (list, _copied(list, False)),
    "builtins.tuple": (tuple, _copied(tuple, False)),
    "builtins.bytearray": (bytearray, _copied(bytearray, False)),
    "builtins.bytes": (bytes, _copied(bytes, False)),
    "builtins.set": (set, _copied(set, True)),
    "builtins.frozenset": (frozenset, _copied(frozenset, True)),
    "builtins.dict": (dict, None),
    "builtins.str": (str, None),
    "builtins.int": (int, _number(int)),
    "builtins.float": (float, _number(float)),
    "builtins.bool": (bool, _number(bool)),
    "builtins.complex": (complex, _number(complex)),
    "builtins.slice": (slice, _number(slice)),
    "builtins.range": (range, _number(range)),
    "numpy.ndarray": (np.ndarray, None),
    "numpy.dtype": (np.dtype, _numpy_dtype),
    **{f"torch.{dtype.name}": (dtype, None) for dtype in (*ALL, complex32, complex64, complex128)},
    **{f"torch.{name}": (kind, None) for name, kind in STORAGES.items()},
    "torch.storage.UntypedStorage": (UNTYPED, None),
}
for _core in ("numpy.core", "numpy._core"):
    KNOWN[f"{_core}.multiarray._reconstruct"] = (_Function(), _numpy_new)
    KNOWN[f"{_core}.multiarray.scalar"] = (_Function(), _numpy_scalar)
    KNOWN[f"{_core}.numeric._frombuffer"] = (_Function(), _numpy_from_buffer)
FUNCTIONS = {name: call for name, (value, call) in KNOWN.items() if call and isinstance(value, _Function)}
"""What stands for functions of PyTorch, each with the machine before its arguments."""
_REBUILDING = {call for name, (_, call) in KNOWN.items() if name.startswith("torch._utils.")}
_CALLS: dict[int, Callable[..., Any]] = {id(value): call for value, call in KNOWN.values() if call is not None}


class WeightNames:
    """The names of files of weights; `load` gives the storage of a key."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def find(self, machine: Machine, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        found = KNOWN.get(full)
        if found is not None:
            return found[0]
        if full in ("torch.nn.parameter.Parameter", f"{_ROOT}.nn.parameter.Parameter"):
            return parameter_class() or Tensor
        declared = allowed(full)
        if declared is not None:
            return declared
        if full == f"{_ROOT}.tensor.Tensor._make_wrapper_subclass":  # of a class that is declared safe
            return Tensor._make_wrapper_subclass
        if module == "torch" and name in LACKED:
            raise DTypeError(str(machine.fail(lacked(name))))
        raise refusal(machine.fail, full)

    def call(self, machine: Machine, function: Any, args: tuple[Any, ...], new: bool) -> Any:
        known = _CALLS.get(id(function))
        if known is not None:
            return known(machine, *args)
        if isinstance(function, type) and function is parameter_class():
            return _parameter(machine, *args)
        if function is Tensor._make_wrapper_subclass:
            return function(*args)
        if is_allowed(function):
            return function.__new__(function, *args) if new else function(*args)
        raise ValueError(f"it calls a {type(function).__name__}")

    def build(self, machine: Machine, instance: Any, state: Any) -> None:
        kind = type(instance)
        if kind is OrderedDict:
            machine.spend(len(state))
            instance.__dict__.update({key: value for key, value in state.items() if not hasattr(OrderedDict, key)})
        elif kind is np.ndarray:
            _build_array(machine, instance, state)
        elif isinstance(instance, np.dtype):
            _build_dtype(machine, instance, state)
        elif isinstance(instance, Tensor) and instance.left_to is None:
            set_attributes(instance, state)
        elif is_allowed(kind):
            _set_state(instance, state)
        else:
            raise ValueError(f"it sets the state of a {kind.__name__}")

    def persistent(self, machine: Machine, key: Any) -> Tensor:
        return self._load(key)


def _set_state(instance: Any, state: Any) -> None:
    """As pickle does."""
    if hasattr(instance, "__setstate__"):
        instance.__setstate__(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        instance.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(instance, name, value)


def refusal(fail: Callable[[str], Exception], full: str) -> Exception:
    text = (
        f"it holds {full}, which is not a tensor, container or number, and load() runs nothing that a file says. If "
        "you trust the file, load(..., weights_only=False) reads it, which may run any code"
    )
    if not is_never_safe(full):
        name = full.removeprefix("builtins.")
        text += f"; or declare this one safe: with norch.serialization.safe_globals([{name}])"
    return RefusedPickleError(*fail(text).args)
