"""Nested Python objects as JSON, and back. Tensors and arrays are left out, and stand there as their number or name.

None, bools, ints, finite floats, strings and lists are themselves, as are dicts whose keys are strings that do not
start with "$". Everything else is an object with one key, its kind: {"$tuple": [...]}.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from ..device import Device
from ..dtype import ALL, ComplexDType, DType, complex32, complex64, complex128
from ..errors import CheckpointError, DeviceError, DTypeError
from ..memory_formats import strided
from ..spec import Size
from ..tensor import Storage, Tensor, TypedStorage
from .attributes import is_of_others, saved_attributes, set_attributes
from .dtypes import name_of, numpy_dtype

MAX_DEPTH = 100

_SEQUENCES: dict[str, type] = {kind.__name__: kind for kind in (tuple, set, frozenset, Size)}
_MAPPINGS: dict[str, type] = {kind.__name__: kind for kind in (dict, OrderedDict, Counter)}
_COMPAT = f"{__name__.partition('.')[0]}.compat"
_DTYPES: dict[str, Any] = {dtype.name: dtype for dtype in (*ALL, complex32, complex64, complex128)}


# --- Objects to JSON ------------------------------------------------------------------------------------------------


class NoStateError(DTypeError):
    """An object is, or holds, something else than a state."""


class Encoder:
    """`encode(object)` gives JSON; the tensors and arrays that it found, each once, are in `tensors` and `arrays`, and
    sparse tensors and storages, by their ids and with the tensors that they are made of, in `parts`.

    keeps_classes: tensors of classes that are not norch's are no state; else they become tensors.
    """

    def __init__(self, keeps_classes: bool = False) -> None:
        self._keeps_classes = keeps_classes
        self.tensors: list[tuple[str, Tensor]] = []
        self.arrays: list[tuple[str, np.ndarray[Any, Any]]] = []
        self._numbers: dict[int, int] = {}
        self._names: set[str] = {"__metadata__"}
        self._path: list[str] = []
        self.parts: dict[int, tuple[Any, list[Tensor]]] = {}
        self._states: list[Any] = []
        self._ordered = 0

    def encode(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if value.bit_length() <= 1024 else {"$int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if isinstance(value, Tensor) and value.layout is not strided:
            return self._sparse(value)
        if isinstance(value, Tensor) and value.left_to is None:
            return self._tensor(value)
        if kind is np.ndarray:
            return self._array(value)
        if len(self._path) >= MAX_DEPTH:
            raise CheckpointError(
                f"save(): {self._where()[:200]}... is nested more than {MAX_DEPTH} deep, or contains itself"
            )
        if kind is list:
            return self._items(value)
        if kind in _SEQUENCES.values():
            return {f"${kind.__name__}": self._items(value)}
        if kind in _MAPPINGS.values():
            return self._mapping(value, kind.__name__)
        return self._leaf(value, kind)

    def _tensor(self, value: Tensor) -> Any:
        if self._keeps_classes and is_of_others(value):
            raise NoStateError(f"save(): {self._where()} is a {_title(type(value))}, a class that a state cannot hold")
        is_new, number = id(value) not in self._numbers, self._number(value, self.tensors)
        own = saved_attributes(value) if is_new else {}
        return {"$attributes": [number, self.encode(own)]} if own else {"$tensor": number}

    def _leaf(self, value: Any, kind: type) -> Any:
        if is_pair(value):
            return {"$pair": self._number(value.pair, self.tensors)}
        if isinstance(value, Storage):
            (flat,) = self.parts.setdefault(id(value), (value, [value._elements()]))[1]
            return {"$storage": self._number(flat, self.tensors)}
        if kind is complex:
            return {"$complex": [self.encode(value.real), self.encode(value.imag)]}
        if kind is bytes or kind is bytearray:
            return {f"${kind.__name__}": base64.b64encode(value).decode("ascii")}
        if kind is DType or kind is ComplexDType:
            return {"$dtype": value.name}
        if kind is Device:
            return {"$device": f"{value.type}:{value.index}"}
        if isinstance(value, np.generic):
            name = name_of(value.dtype)
            if name is not None:
                return {"$scalar": [name, value.tobytes().hex()]}
        raise NoStateError(f"save(): {self._where()} is a {_title(kind)}, which a state cannot hold{_advice(value)}")

    def _sparse(self, value: Any) -> Any:
        parts = self.parts.setdefault(id(value), (value, sparse_parts(value)))[1]
        return {"$sparse": [layout_name(value), list(value.shape), is_coalesced(value), self._items(parts)]}

    def _items(self, values: Any) -> list[Any]:
        found = []
        for i, value in enumerate(values):
            self._path.append(str(i))
            found.append(self.encode(value))
            self._path.pop()
        return found

    def _mapping(self, values: dict[Any, Any], kind: str) -> Any:
        plain = kind == "dict"
        pairs = []
        for key, value in values.items():
            if isinstance(key, Tensor | np.ndarray):
                raise NoStateError(
                    f"save(): {self._where()} has a {type(key).__name__} as a key; use its name or number"
                )
            plain = plain and type(key) is str and not key.startswith("$")
            self._path.append(key if isinstance(key, str) else repr(key)[:40])
            pairs.append((self.encode(key), self.encode(value)))
            self._path.pop()
        if kind == "OrderedDict":
            if hasattr(values, "_metadata"):
                self._states.append((self._ordered, values._metadata))
            self._ordered += 1
        return dict(pairs) if plain else {"$" + kind: [list(pair) for pair in pairs]}

    def metadata(self) -> list[Any]:
        """The `_metadata` of the states of modules that `encode` met: which OrderedDict has it, and it as JSON."""
        states, self._path = self._states, ["_metadata"]
        return [[number, self.encode(metadata)] for number, metadata in states]

    def _array(self, value: np.ndarray[Any, Any]) -> Any:
        if name_of(value.dtype) is None:
            raise NoStateError(f"save(): {self._where()} is an array of {value.dtype}, which a state cannot hold")
        return {"$array": self._number(value, self.arrays)}

    def _number(self, value: Any, found: list[tuple[str, Any]]) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(found)
            found.append((self._name(), value))
        return number

    def _name(self) -> str:
        """The path as the name of a tensor in the file: a state_dict saved on its own keeps its keys."""
        path = ".".join(self._path).encode("utf-8", "replace").decode("utf-8") or "tensor"
        name, count = path, 1
        while name in self._names:
            count += 1
            name = f"{path}#{count}"
        self._names.add(name)
        return name

    def _where(self) -> str:
        return "the object" + "".join(f"[{part!r}]" for part in self._path)


def _title(kind: type) -> str:
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _advice(value: Any) -> str:
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return ": neither functions nor classes can be saved"
    for name in ("state_dict", "get_state"):
        if callable(getattr(value, name, None)):
            return f"; save what its {name}() returns"
    if isinstance(value, np.ndarray):
        return "; save numpy.asarray(it)"
    if hasattr(value, "_fields"):
        return "; save tuple(it) or its _asdict()"
    for base in (dict, list, tuple, set, str, int, float):
        if isinstance(value, base):
            return f"; save {base.__name__}(it)"
    return "; save vars(it)" if hasattr(value, "__dict__") else "; save a list, a dict, numbers, strings or tensors"


# --- JSON to objects ------------------------------------------------------------------------------------------------


class Decoder:
    """`decode(JSON)` gives the object. What no Encoder could have written raises CheckpointError."""

    def __init__(self, tensors: list[Any], arrays: list[Any], fail: Callable[[str], Exception]) -> None:
        self._shared = {"$tensor": tensors, "$array": arrays}
        self._fail = fail
        self._ordered: list[OrderedDict[Any, Any]] = []

    def decode(self, node: Any, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise self._fail(f"its structure is nested more than {MAX_DEPTH} deep")
        kind = type(node)
        if kind is list:
            return [self.decode(n, depth + 1) for n in node]
        if kind is not dict:
            return node
        tag = next(iter(node)) if len(node) == 1 else ""
        if not tag.startswith("$"):
            return {key: self.decode(value, depth + 1) for key, value in node.items()}
        try:
            return self._tagged(tag, node[tag], depth)
        except (TypeError, ValueError, OverflowError, DeviceError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise self._fail(f"its structure is damaged at {node!r:.80}: {error}") from None

    def set_metadata(self, found: Any) -> None:
        """Gives the OrderedDicts of what was decoded what `Encoder.metadata` found."""
        ordered = self._ordered[:]
        if type(found) is not list or not all(
            type(pair) is list and len(pair) == 2 and type(pair[0]) is int and 0 <= pair[0] < len(ordered)
            for pair in found
        ):
            raise self._fail("its structure is damaged: the metadata is of no state")
        for number, metadata in found:
            ordered[number]._metadata = self.decode(metadata)

    def _tagged(self, tag: str, value: Any, depth: int) -> Any:
        if tag in self._shared:
            found = self._shared[tag]
            if type(value) is not int or not 0 <= value < len(found):
                raise ValueError(f"there is no number {value!r:.40} among its {len(found)}")
            return found[value]
        if tag == "$attributes":
            number, own = _list(value)
            made = self._tagged("$tensor", number, depth)
            set_attributes(made, self.decode(own, depth + 1))
            return made
        if tag == "$storage":
            return TypedStorage(self._tagged("$tensor", value, depth))
        if tag == "$pair":
            return as_pair(self._tagged("$tensor", value, depth))
        name = tag[1:]
        if name == "sparse":
            layout, size, coalesced, parts = _list(value)
            return made_sparse(layout, [self.decode(part, depth + 1) for part in _list(parts)], size, coalesced)
        if name in _MAPPINGS:
            pairs = [(self.decode(k, depth + 1), self.decode(v, depth + 1)) for k, v in _list(value)]
            mapping = _MAPPINGS[name](dict(pairs))
            if len(mapping) != len(pairs):
                raise ValueError("a key comes twice")
            if isinstance(mapping, OrderedDict):
                self._ordered.append(mapping)
            return mapping
        if name in _SEQUENCES:
            items = [self.decode(v, depth + 1) for v in _list(value)]
            if name == "Size" and not all(type(n) is int for n in items):
                raise ValueError("the sizes are not ints")
            return _SEQUENCES[name](items)
        if name == "complex":
            real, imaginary = (self.decode(v, depth + 1) for v in _list(value))
            return complex(float(real), float(imaginary))
        return _scalar(name, value)


def _scalar(name: str, value: Any) -> Any:
    if name == "scalar":
        dtype, digits = _list(value)
        found = numpy_dtype(_text(dtype))
        if found is None or len(data := bytes.fromhex(_text(digits))) != found.itemsize:
            raise ValueError("no number of that dtype")
        return np.frombuffer(data, found)[0]
    text = _text(value)
    if name == "int":
        return int(text, 16)
    if name == "float":
        return float(text)
    if name == "bytes" or name == "bytearray":
        data = base64.b64decode(text, validate=True)
        return data if name == "bytes" else bytearray(data)
    if name == "dtype":
        if text not in _DTYPES:
            raise ValueError(f"norch has no dtype {text!r:.40}")
        return _DTYPES[text]
    if name == "device":
        return device_named(text)
    raise ValueError(f"this norch knows nothing of the kind {name!r:.40}; a newer one may")


def is_pair(value: Any) -> bool:
    """Whether it is a ComplexPair, whose module is loaded only where there is one."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__name__}" == f"{_COMPAT}.complex_numbers.ComplexPair"


def as_pair(parts: Any) -> Any:
    """The ComplexPair of (..., 2) parts. Raises ShapeError and DTypeError as `view_as_complex`."""
    return import_module(f"{_COMPAT}.complex_parts").view_as_complex(parts)


def layout_name(x: Any) -> str:
    return str(x.layout.__reduce__())


def is_coalesced(x: Any) -> bool | None:
    """Of a COO tensor; None of others."""
    return x.is_coalesced() if layout_name(x) == "sparse_coo" else None


_PARTS = {
    "sparse_coo": ("_indices", "_values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
}
"""By layout the methods that give what a sparse tensor is made of."""


def sparse_parts(x: Any) -> list[Tensor]:
    return [getattr(x, name)().detach() for name in _PARTS[layout_name(x)]]


def made_sparse(layout: Any, parts: list[Any], size: Any, coalesced: Any) -> Tensor:
    """The sparse tensor of these parts, which are checked. Raises ValueError for what makes none."""
    names = _PARTS.get(layout, ())
    if len(parts) != len(names) or not all(isinstance(x, Tensor) for x in parts) or not isinstance(size, list | tuple):
        raise ValueError("a sparse tensor has no indices, values or size")
    made: Any = getattr(import_module(f"{__name__.partition('.')[0]}.sparse"), f"{layout}_tensor")(*parts, tuple(size))
    return made.coalesce() if coalesced is True else made  # type: ignore[no-any-return]


def device_named(text: Any) -> Device:
    """The device that a file names. Raises ValueError for what does not name one."""
    kind, _, number = _text(text).partition(":")
    if not (kind.isascii() and kind.isidentifier() and len(kind) <= 40 and number.isdecimal() and len(number) <= 4):
        raise ValueError(f"{text!r:.40} names no device")
    return Device(kind, int(number))


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError("expected a list")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("expected a string")
    return value
