"""Safetensors files as they are: flat, each name a tensor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..device import CPU, Device
from ..dtype import as_dtype, complex64
from ..errors import DTypeError, MetaError
from ..memory_formats import strided
from ..ops.from_data import array_to_tensor
from ..tensor import Tensor
from ..tensor.interop import numpy as as_array
from . import header
from .dtypes import NAMES
from .source import Source
from .tree import is_pair
from .writing import write_file


def load_safetensors(
    path: str | os.PathLike[str], device: Device | str | None = None, dtype: Any = None, *, mmap: bool = True
) -> dict[str, Tensor]:
    """The tensors of a safetensors file, `path`, by name.

    device: the CPU unless given. dtype: what floating tensors are converted to. mmap: tensors on the CPU stay in the
    file until they are used, and are copied page by page where they are written to; the file must not be cut off
    meanwhile (putting another in its place does no harm).

    Raises CheckpointError for a file that is damaged, cut off or something else; DTypeError for tensors of a dtype that
    norch lacks (unsigned integers but uint8, 8-bit floats unless `dtype` is given).
    """
    with Source(path, "load_safetensors") as source:
        target = CPU if device is None else Device(device)
        found = {}
        for name in sorted(source.entries, key=lambda n: source.entries[n].begin):
            found[name] = _tensor(source, name, target, dtype, mmap)
        return {name: found[name] for name in source.entries}


def _tensor(source: Source, name: str, device: Device, dtype: Any, mapped: bool) -> Tensor:
    chosen = None if dtype is None else as_dtype(dtype, source.op)
    if chosen is not None and not chosen.is_floating_point:
        raise DTypeError(f"{source.op}(): dtype is for the floating tensors and must be floating, got {chosen}")
    kind = source.entries[name].dtype
    if chosen is not None and kind.startswith("F8_"):
        return array_to_tensor(source.read_array(name).astype(chosen.numpy), None, False).to(device)
    tensor = source.map(name) if mapped and source.mappable and device is CPU else source.read(name, device)
    return tensor.to(chosen) if chosen is not None and tensor.is_floating_point() else tensor


def save_safetensors(
    tensors: Mapping[str, Tensor], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes named tensors as a safetensors file for any program, in one step as `norch.save` does.

    Each is stored on its own, a ComplexPair of float32 as complex64: tensors that share memory do not share it after
    loading (with `norch.save` they do).
    Raises DTypeError unless `tensors` is a dict of tensors and `metadata` one of strings. MetaError for tensors on
    "meta".
    """
    if not isinstance(tensors, Mapping):
        raise DTypeError(f"save_safetensors(): expected a dict of tensors, got {type(tensors).__name__}")
    for name, tensor in tensors.items():
        kind: Any = getattr(tensor, "dtype", None)
        if is_pair(tensor) and kind is not complex64:
            raise DTypeError(
                f"save_safetensors(): {name!r:.80} is {tensor.dtype}, of which the format has only complex64"
            )
        if not isinstance(name, str) or not (isinstance(tensor, Tensor) or is_pair(tensor)):
            raise DTypeError(
                f"save_safetensors(): expected names and tensors, got {name!r:.80}: {type(tensor).__name__}; use "
                "norch.save for nested states"
            )
        if not is_pair(tensor) and tensor.layout is not strided:
            raise DTypeError(f"save_safetensors(): {name} is a sparse tensor, of which the format has none")
        _check_name(name)
        if tensor.is_meta:
            raise MetaError("save_safetensors")
    given = dict(metadata or {})
    for key, text in given.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise DTypeError(f"save_safetensors(): metadata must be strings, got {key!r:.80}: {text!r:.80}")
    layout = {name: ("C64" if is_pair(t) else NAMES[t.dtype], tuple(t.shape)) for name, t in tensors.items()}
    parts = {name: getattr(t, "pair", t) for name, t in tensors.items()}
    write_file(
        path,
        "save_safetensors",
        layout,
        lambda entries, _: header.build(entries, given),
        lambda name: as_array(parts[name].detach().contiguous().cpu()).reshape(-1).view(np.uint8),
    )


def _check_name(name: str) -> None:
    if name == "__metadata__" or (not name.isprintable() and any("\ud800" <= c <= "\udfff" for c in name)):
        raise DTypeError(f"save_safetensors(): {name!r:.80} cannot be the name of a tensor")


class safe_open:  # a function in the ancestor of the format
    """A safetensors file, `filename`, whose tensors are read one by one: `with norch.safe_open(path) as f:
    f.get_tensor(name)`.

    framework: ignored, it is norch. device: where the tensors go.
    """

    def __init__(self, filename: str | os.PathLike[str], framework: object = None, device: Device | str = CPU) -> None:
        self._source = Source(filename, "safe_open")
        self._device = Device(device)

    def keys(self) -> list[str]:
        """The names of the tensors."""
        return list(self._source.entries)

    def metadata(self) -> dict[str, str] | None:
        """The strings that the writer added; None where there are none."""
        return self._source.metadata or None

    def get_tensor(self, name: str) -> Tensor:
        """One tensor, mapped as `load_safetensors` does. Raises KeyError for a name that the file does not have."""
        return _tensor(self._source, self._known(name), self._device, None, True)

    def get_slice(self, name: str) -> Slice:
        """One tensor of which only the part that is indexed is read."""
        return Slice(self._source, self._known(name), self._device)

    def _known(self, name: str) -> str:
        if name not in self._source.entries:
            some = ", ".join(self.keys()[:20])
            raise KeyError(f"safe_open(): {self._source.name} has no tensor {name!r}; it has {some}")
        return name

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *exception: object) -> None:
        self._source.close()


class Slice:
    """A tensor of a file that is read where it is indexed."""

    def __init__(self, source: Source, name: str, device: Device) -> None:
        self._source, self._name, self._device = source, name, device

    def get_shape(self) -> list[int]:
        return list(self._source.entries[self._name].shape)

    def get_dtype(self) -> str:
        """The format's name of the dtype, such as "F32"."""
        return self._source.entries[self._name].dtype

    def __getitem__(self, index: Any) -> Tensor:
        part: Tensor = _tensor(self._source, self._name, CPU, None, True)[index]
        return part.to(self._device)
