"""Random numbers as every norch backend defines them: the generator Philox4x32-10, counted, never stateful.

J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

The definition, binding for all backends:

    key     = (seed & 0xffffffff, seed >> 32)
    counter = (block & 0xffffffff, block >> 32, offset & 0xffffffff, offset >> 32)

`seed` and `offset` are the scalars of the op `random`; `offset` is the generator's call count. The block of a counter
is four 32-bit words w0, w1, w2, w3. Element i of the output is counted in logical row-major order.

    bits      int64            word w[i % 4] of block i // 4
    bits64    int64            (w_a << 32 | w_b) >> 1, where (w_a, w_b) is (w0, w1) of block i // 2 for an even i,
                               (w2, w3) for an odd one
    uniform   float32          (w >> 8) * 2**-24, where w is the word that `bits` takes
              float16          (w >> 21) * 2**-11
              bfloat16         (w >> 24) * 2**-8
              float64          ((w_a >> 5) * 2**26 + (w_b >> 6)) * 2**-53, where w_a, w_b are those of `bits64`
    normal    float32,         elements 0 and 1 of a block of four are r * cos(t) and r * sin(t), where
              float16,         r = sqrt(-2 * ln(1 - u0)), t = 2 * pi * u1, and u0 ... u3 are the four float32 uniforms
              bfloat16         of the block; elements 2 and 3 are the same of u2, u3. Rounded once, to the dtype
              float64          the same of the two float64 uniforms of block i // 2: element 0 is the cosine, 1 the sine

Uniforms lie in [0, 1) and are the same bits everywhere; normals are the same to a few ulp of the dtype computed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .views import Array

ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
MASK = 0xFFFFFFFF


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Array, Array, Array, Array]:
    """The four words of each counter; its parts and the words are uint64 arrays of 32-bit values."""
    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counter)
    k0, k1 = key
    m0, m1, low, half = (np.uint64(n) for n in (*MULTIPLIERS, MASK, 32))
    for _ in range(ROUNDS):
        p0, p1 = m0 * c0, m1 * c2
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ np.uint64(k0), p1 & low, (p0 >> half) ^ c3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return c0, c1, c2, c3


def words(seed: int, offset: int, first: int, count: int) -> Array:
    """The words of `count` blocks from block `first` on: uint64 of shape (count, 4)."""
    block = np.arange(first, first + count, dtype=np.uint64)
    counter = (block & np.uint64(MASK), block >> np.uint64(32), offset & MASK, offset >> 32)
    result = np.empty((count, 4), np.uint64)
    for i, word in enumerate(philox(counter, (seed & MASK, seed >> 32))):
        result[:, i] = word
    return result


def _pairs(w: Array) -> tuple[Array, Array]:
    return w[:, 0::2], w[:, 1::2]


def bits(w: Array) -> Array:
    return w


def bits64(w: Array) -> Array:
    a, b = _pairs(w)
    result: Array = (a << np.uint64(32) | b) >> np.uint64(1)
    return result


def uniform(w: Array, digits: int) -> Array:
    """The leading `digits` bits of each word as a fraction; exact in float64."""
    result: Array = (w >> np.uint64(32 - digits)) * 2.0**-digits
    return result


def uniform64(w: Array) -> Array:
    a, b = _pairs(w)
    result: Array = ((a >> np.uint64(5)) * 2.0**26 + (b >> np.uint64(6))) * 2.0**-53
    return result


def normal(u: Array) -> Array:
    """Box-Muller on uniforms of shape (blocks, an even number)."""
    radius = np.sqrt(-2 * np.log1p(-u[:, 0::2]))
    angle = 2 * np.pi * u[:, 1::2]
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1).reshape(u.shape)


# (kind, dtype): from the words of n blocks to the elements of n blocks, in float64 or uint64.
KINDS: dict[tuple[str, str], Callable[[Array], Array]] = {
    ("bits", "int64"): bits,
    ("bits64", "int64"): bits64,
    ("uniform", "float32"): lambda w: uniform(w, 24),
    ("uniform", "float16"): lambda w: uniform(w, 11),
    ("uniform", "bfloat16"): lambda w: uniform(w, 8),
    ("uniform", "float64"): uniform64,
    ("normal", "float32"): lambda w: normal(uniform(w, 24)),
    ("normal", "float16"): lambda w: normal(uniform(w, 24)),
    ("normal", "bfloat16"): lambda w: normal(uniform(w, 24)),
    ("normal", "float64"): lambda w: normal(uniform64(w)),
}
