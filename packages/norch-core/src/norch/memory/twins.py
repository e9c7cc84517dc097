"""Copies of models, optimisers and examples whose tensors lie on stand-ins: the same structure, no memory."""

from __future__ import annotations

import copy
from types import CellType, FunctionType
from typing import Any

from ..device import Device
from ..spec import Spec, dense_strides
from ..tensor_base import TensorBase, make_tensor
from .counting import stand_in_for


class Twins(dict[int, Any]):
    """The memo of `copy.deepcopy`, by which a tensor is copied as its twin.

    device: where all tensors are to be, None for where they are; those of "meta" are on `home`.
    """

    def __init__(self, device: Device | None, home: Device) -> None:
        super().__init__()
        self.device, self.home = device, home
        self.buffers: dict[int, Any] = {}
        self.alive: list[Any] = []
        self.real = 0
        """Bytes of the device `home` that the tensors themselves hold."""

    def copy_of(self, tensor: Any) -> Any:
        """The twin of a tensor: of its class, shape, strides and dtype. What shares memory has twins that share it."""
        found = self.get(id(tensor))
        if found is not None:
            return found
        spec = tensor.spec
        if type(spec) is not Spec:
            raise TypeError(f"a {type(tensor).__name__} has no shape, dtype and device of its own")
        place = self.device or (self.home if spec.device.is_meta else spec.device)
        twin = stand_in_for(place)
        if id(tensor.buffer) not in self.buffers:
            self.buffers[id(tensor.buffer)] = twin.backend.allocate(tensor.buffer.nbytes, twin.index)
            if spec.device is self.home:
                self.real += twin.backend.size_of(tensor.buffer.nbytes)  # type: ignore[attr-defined]
        spec = Spec(spec.shape, spec.strides, spec.dtype, twin)
        out = make_tensor(spec, self.buffers[id(tensor.buffer)], tensor.offset, kind=type(tensor))
        self[id(tensor)] = out
        self.alive.append(tensor)  # so that its id is not another's
        out.__dict__.update({k: v for k, v in tensor.__dict__.items() if k not in ("_leaf", "_retains")})
        return out.requires_grad_() if tensor.requires_grad else out

    def copies(self, value: Any) -> Any:
        """A model and an optimiser, as `copy.deepcopy` copies them; functions that modules have use the copies."""
        found = copy.deepcopy(value, self)
        for module in found[0].modules():
            for name, part in tuple(vars(module).items()):
                if isinstance(part, FunctionType):
                    vars(module)[name] = self.function(part)
        return found

    def example(self, value: Any, batch: tuple[int, int, int] | None = None) -> Any:
        """Tensors, in tuples, lists and dicts, as they are given to a model.

        batch: (dim, old, new): tensors that have `old` elements in `dim` get `new`.
        """
        if isinstance(value, TensorBase):
            return self.copy_of(value) if batch is None else self._resized(value, *batch)
        if isinstance(value, dict):
            return type(value)({k: self.example(v, batch) for k, v in value.items()})
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*[self.example(v, batch) for v in value])
        if isinstance(value, list | tuple):
            return type(value)([self.example(v, batch) for v in value])
        return value

    def function(self, value: Any, batch: tuple[int, int, int] | None = None) -> Any:
        """A Python function that sees, in place of the tensors among its variables, their twins."""
        if not isinstance(value, FunctionType):
            return value
        variables, cells, defaults = value.__globals__, value.__closure__, value.__defaults__
        if cells is not None:
            cells = tuple([self._cell(cell, batch) for cell in cells])
        names = [name for name in value.__code__.co_names if self._has_twin(variables.get(name))]
        if names:
            variables = {**variables, **{name: self._twin(variables[name], batch) for name in names}}
        if defaults is not None:
            defaults = tuple([self._twin(v, batch) for v in defaults])
        out = FunctionType(value.__code__, variables, value.__name__, defaults, cells)
        out.__kwdefaults__ = value.__kwdefaults__
        return out

    def _has_twin(self, value: Any) -> bool:
        return isinstance(value, TensorBase) or id(value) in self

    def _twin(self, value: Any, batch: tuple[int, int, int] | None) -> Any:
        return self[id(value)] if id(value) in self else self.example(value, batch)

    def _cell(self, cell: CellType, batch: tuple[int, int, int] | None) -> CellType:
        try:
            value = cell.cell_contents
        except ValueError:  # not yet assigned
            return cell
        known = self._has_twin(value) or isinstance(value, tuple | list | dict)
        return CellType(self._twin(value, batch)) if known else cell

    def _resized(self, tensor: Any, dim: int, old: int, new: int) -> Any:
        spec = tensor.spec
        if spec.ndim <= dim or spec.shape[dim] != old or old == new:
            return self.copy_of(tensor)
        found = self.get(id(tensor))
        if found is not None:
            return found
        shape = (*spec.shape[:dim], new, *spec.shape[dim + 1 :])
        twin = stand_in_for(self.device or (self.home if spec.device.is_meta else spec.device))
        wanted = Spec(shape, dense_strides(shape, spec.strides), spec.dtype, twin)
        out = make_tensor(wanted, twin.backend.allocate(wanted.nbytes, twin.index), kind=type(tensor))
        self[id(tensor)] = out
        self.alive.append(tensor)
        return out.requires_grad_() if tensor.requires_grad else out
