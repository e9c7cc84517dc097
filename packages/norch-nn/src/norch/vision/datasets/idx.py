"""The idx format of MNIST: two zero bytes, the type, the number of dims, each length as 4 bytes (big-endian), the data.

Source: http://yann.lecun.com/exdb/mnist/.
"""

from __future__ import annotations

import math
import struct

import numpy as np

UNSIGNED_BYTE = 8


def parse_idx(data: bytes, ndim: int) -> np.ndarray:
    """A writable uint8 array of `ndim` dims. Raises ValueError for any other contents, or another length."""
    start = 4 + 4 * ndim
    if len(data) < start:
        raise ValueError(f"is too short for an idx file of {ndim} dims: {len(data)} bytes")
    zero, kind, dims = struct.unpack(">HBB", data[:4])
    if (zero, kind, dims) != (0, UNSIGNED_BYTE, ndim):
        expected = f"{UNSIGNED_BYTE << 8 | ndim:#010x}"
        raise ValueError(
            f"is not an idx file of bytes in {ndim} dims: it starts with 0x{data[:4].hex()}, not {expected}"
        )
    shape = struct.unpack(f">{ndim}I", data[4:start])
    if len(data) - start != math.prod(shape):
        raise ValueError(f"holds {len(data) - start} bytes where its header says {shape}, {math.prod(shape)} bytes")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape).copy()
