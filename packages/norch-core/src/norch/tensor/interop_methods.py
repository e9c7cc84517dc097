"""Conversions as methods: to Python, NumPy and DLPack, to other dtypes and devices, to new tensors like this one."""

from __future__ import annotations

from ..ops import creation_like
from . import interop, transfer


class InteropMethods:
    __slots__ = ()

    numpy = interop.numpy
    item = interop.item
    tolist = interop.tolist
    __array__ = interop.__array__
    __len__ = interop.__len__
    __iter__ = interop.__iter__
    __bool__ = interop.__bool__
    __float__ = interop.__float__
    __int__ = interop.__int__
    __index__ = interop.__index__
    __contains__ = interop.__contains__
    __format__ = interop.__format__
    __deepcopy__ = interop.__deepcopy__
    __reduce_ex__ = interop.__reduce_ex__
    __dlpack__ = interop.__dlpack__
    __dlpack_device__ = interop.__dlpack_device__

    to = transfer.to
    cpu = transfer.cpu
    cuda = transfer.cuda
    type = transfer.type_
    type_as = transfer.type_as
    float = transfer.float_
    double = transfer.double
    half = transfer.half
    bfloat16 = transfer.to_bfloat16
    long = transfer.long
    int = transfer.int_
    short = transfer.short
    char = transfer.char
    byte = transfer.byte
    bool = transfer.to_bool

    new_empty = creation_like.new_empty
    new_zeros = creation_like.new_zeros
    new_ones = creation_like.new_ones
    new_full = creation_like.new_full
    new_tensor = creation_like.new_tensor
