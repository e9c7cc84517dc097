"""Philox4x32-10 in Python's whole numbers, one word at a time: what the op `random` is held to.

J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. How words become numbers
is part of the contract: norch.numpy_backend.philox.
"""

from __future__ import annotations

import math

MASK = 0xFFFFFFFF


def block(seed: int, offset: int, number: int) -> list[int]:
    """The four words of block `number`."""
    c = [number & MASK, number >> 32, offset & MASK, offset >> 32]
    k = [seed & MASK, seed >> 32]
    for _ in range(10):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [right >> 32 ^ c[1] ^ k[0], right & MASK, left >> 32 ^ c[3] ^ k[1], left & MASK]
        k = [k[0] + 0x9E3779B9 & MASK, k[1] + 0xBB67AE85 & MASK]
    return c


def draw(kind: str, dtype: str, seed: int, offset: int, count: int) -> list[float]:
    """The first `count` elements."""
    return [_element(kind, dtype, seed, offset, i) for i in range(count)]


def _element(kind: str, dtype: str, seed: int, offset: int, i: int) -> float:
    if kind == "bits":
        return block(seed, offset, i // 4)[i % 4]
    if kind == "bits64" or dtype == "float64":
        words = block(seed, offset, i // 2)
        high, low = words[2 * (i % 2) :][:2]
        if kind == "bits64":
            return (high << 32 | low) >> 1
        if kind == "uniform":
            return _uniform64(high, low)
        u, v = _uniform64(*words[:2]), _uniform64(*words[2:])
        return _normal(u, v, i % 2)
    words = block(seed, offset, i // 4)
    if kind == "uniform":
        digits = {"float32": 24, "float16": 11, "bfloat16": 8}[dtype]
        return (words[i % 4] >> 32 - digits) * 2.0**-digits
    u, v = ((w >> 8) * 2.0**-24 for w in words[i % 4 // 2 * 2 :][:2])
    return _normal(u, v, i % 2)


def _uniform64(high: int, low: int) -> float:
    return ((high >> 5) * 2.0**26 + (low >> 6)) * 2.0**-53


def _normal(u: float, v: float, part: int) -> float:
    """G. Box and M. Muller's transform: element 0 of a pair has the cosine, 1 the sine."""
    wave = math.sin if part else math.cos
    return math.sqrt(-2 * math.log1p(-u)) * wave(2 * math.pi * v)
