"""Which tensors lie on the same memory, so that it is saved once, and they share it again when they are loaded."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import Device
from ..errors import DTypeError, MetaError
from ..memory_formats import strided
from ..tensor.interop import numpy as as_array
from ..tensor_base import make_tensor
from .dtypes import NAMES

if TYPE_CHECKING:
    from ..tensor import Tensor


class Block:
    """A stretch of memory under one or more tensors, that do not reach beyond it.

    `views`: (number of the tensor, shape, strides, offset), in elements; strides are None where contiguous.
    """

    def __init__(self, name: str, shape: tuple[int, ...], source: Tensor | None, device: Device) -> None:
        self.name = name
        self.shape = shape
        self.device = device
        self.source = source  # the tensor whose elements, row by row, are the block; else it is put together
        self.parts: list[Tensor] = []
        self.views: list[tuple[int, tuple[int, ...], tuple[int, ...] | None, int]] = []
        self.dtype: str = ""

    def array(self) -> np.ndarray[Any, Any]:
        """The bytes, on the host."""
        if self.source is not None:
            return _host(self.source).reshape(-1).view(np.uint8)
        whole = np.zeros(self.shape, self.parts[0].spec.dtype.numpy)  # what no tensor shows is 0
        size = whole.itemsize
        for tensor, (_, _, _, offset) in zip(self.parts, self.views, strict=True):
            spec = tensor.spec
            shape = tuple([n if s else 1 for n, s in zip(spec.shape, spec.strides, strict=True)])  # repeats only once
            once = make_tensor(spec.like(shape, spec.strides), tensor.buffer, tensor.offset)
            place = np.ndarray(shape, whole.dtype, whole, offset * size, tuple([s * size for s in spec.strides]))
            place[...] = _host(once)
        return whole.view(np.uint8)


def _host(tensor: Tensor) -> np.ndarray[Any, Any]:
    return as_array(tensor.detach().contiguous().cpu())


def blocks(tensors: list[tuple[str, Tensor]]) -> list[Block]:
    """The memory of named tensors, each block under the name of its first. Raises DTypeError for mixed dtypes."""
    placed: dict[Any, list[tuple[int, int, int]]] = {}  # where addresses compare: [(begin, end, number)], in bytes
    found = []
    for number, (name, tensor) in enumerate(tensors):
        spec = tensor.spec
        if tensor.is_meta:
            raise MetaError("save")
        if tensor.layout is not strided:
            raise DTypeError(
                f"save(): {name} is a sparse tensor, which files of weights do not hold; save its indices and values"
            )
        if spec.numel == 0:
            found.append((number, _alone(name, number, tensor)))
            continue
        base = spec.device.backend.data_ptr(tensor.buffer)
        begin = base + tensor.offset * spec.dtype.itemsize
        where = spec.device if base else (spec.device, id(tensor.buffer))
        placed.setdefault(where, []).append((begin, begin + spec.nbytes, number))
    for spans in placed.values():
        spans.sort()
        group: list[tuple[int, int, int]] = []
        end = 0
        for span in spans:
            if group and span[0] >= end:
                found.append(_block(group, tensors))
                group = []
            group.append(span)
            end = max(end, span[1]) if len(group) > 1 else span[1]
        found.append(_block(group, tensors))
    return [block for _, block in sorted(found, key=lambda item: item[0])]


def _alone(name: str, number: int, tensor: Tensor) -> Block:
    block = Block(name, tuple(tensor.spec.shape), tensor, tensor.spec.device)
    block.dtype = NAMES[tensor.spec.dtype]
    block.views.append((number, block.shape, None, 0))
    return block


def _block(group: list[tuple[int, int, int]], tensors: list[tuple[str, Tensor]]) -> tuple[int, Block]:
    """The block of tensors whose spans overlap, and the number of the first of them."""
    numbers = sorted(number for _, _, number in group)
    first_name, first = tensors[numbers[0]]
    specs = {tensors[n][1].spec for n in numbers}
    begins = {begin for begin, _, _ in group}
    if len(specs) == 1 and len(begins) == 1 and not first.spec.overlaps:  # one tensor, perhaps under several names
        block = _alone(first_name, numbers[0], first)
        block.views = [(n, block.shape, None, 0) for n in numbers]
        return numbers[0], block
    begin, end = min(begins), max(end for _, end, _ in group)
    size = first.spec.dtype.itemsize
    kinds = Counter(tensors[n][1].spec.dtype.name for n in numbers)
    if len(kinds) > 1 or any((b - begin) % size for b in begins):
        names = ", ".join(repr(tensors[n][0]) for n in numbers[:4])
        raise DTypeError(
            f"save(): tensors {names} share memory as different dtypes ({', '.join(kinds)}), which a checkpoint cannot "
            "hold; save a clone() of one"
        )
    starts = {number: (b - begin) // size for b, _, number in group}
    whole = next((n for n in numbers if _covers(tensors[n][1], end - begin)), None)
    if whole is None:
        block = Block(first_name, ((end - begin) // size,), None, first.spec.device)
    else:
        block = Block(first_name, tuple(tensors[whole][1].spec.shape), tensors[whole][1], first.spec.device)
    block.dtype = NAMES[first.spec.dtype]
    for n in numbers:
        tensor = tensors[n][1]
        strides = None if tensor.spec.is_contiguous else tensor.spec.strides
        block.parts.append(tensor)
        block.views.append((n, tuple(tensor.spec.shape), strides, starts[n]))
    return numbers[0], block


def _covers(tensor: Tensor, nbytes: int) -> bool:
    return tensor.spec.is_contiguous and tensor.nbytes == nbytes
