"""Buffers and operands that tests of Backend.program share."""

from __future__ import annotations

import numpy as np

from norch.backend import Fed, Operand, Place
from norch.dtype import float32, int64

N = 1000
VECTOR = Operand(float32, (N,), (1,))
NUMBER = Operand(float32, (), (), True)
KEY = Operand(int64, (), (), True)
INDEX = Operand(int64, (N,), (1,))


def matrix(rows, columns, dtype=float32):
    return Operand(dtype, (rows, columns), (columns, 1))


def buffer_of(backend, array):
    buffer = backend.allocate(array.nbytes, 0)
    backend.copy_in(buffer, 0, memoryview(array).cast("B"))
    return buffer


def values(backend, buffer, dtype=np.float32):
    out = np.empty(buffer.nbytes // np.dtype(dtype).itemsize, dtype)
    backend.copy_out(buffer, 0, memoryview(out).cast("B"))
    return out


def one_by_one(calls, buffers, numbers=()):
    for call, arguments in calls:
        call(*[buffers[a] if type(a) is Place else numbers[a] if type(a) is Fed else a for a in arguments])
