"""The random numbers of norch.numpy_backend.philox, which every backend must reproduce."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest

from norch.backend.contract import Operand
from norch.dtype import DType, bfloat16, float16, float32, float64, int64
from norch.numpy_backend import random
from norch.numpy_backend.backend import NumpyBackend
from norch.numpy_backend.philox import philox
from norch.spec import contiguous_strides

BACKEND = NumpyBackend()
SEED, OFFSET = 0x123456789ABCDEF0, 0xFEDCBA9876543210

# kat_vectors of Random123: counter, key, words
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words_of(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split())


def philox_in_ints(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """The paper's definition, in Python ints."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 % 2**32, p0 >> 32 ^ c3 ^ k1, p0 % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def word(i: int, seed: int = SEED, offset: int = OFFSET) -> int:
    """Word `i` of the stream: word i % 4 of block i // 4."""
    block = i // 4
    counter = (block % 2**32, block >> 32, offset % 2**32, offset >> 32)
    return philox_in_ints(counter, (seed % 2**32, seed >> 32))[i % 4]


def draw(kind: str, dtype: DType, shape: tuple[int, ...], seed: int = SEED, offset: int = OFFSET) -> Any:
    strides = contiguous_strides(shape)
    scalar = Operand(int64, (), (), True)
    kernel = BACKEND.compile("random", (Operand(dtype, shape, strides), scalar, scalar), {"kind": kind})
    assert kernel is not None
    size = math.prod(shape)
    buffer = BACKEND.allocate(size * dtype.itemsize, 0)
    kernel(buffer, 0, seed, offset)
    return buffer.data.view(dtype.numpy).reshape(shape)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: str, key: str, expected: str) -> None:
    result = philox(words_of(counter), words_of(key))
    assert tuple(int(w) for w in result) == words_of(expected)
    assert philox_in_ints(words_of(counter), words_of(key)) == words_of(expected)


def test_counter_beyond_32_bits() -> None:
    from norch.numpy_backend.philox import words

    first = 2**32 - 1
    expected = [[word(4 * (first + b) + i) for i in range(4)] for b in range(3)]
    assert words(SEED, OFFSET, first, 3).tolist() == expected


def uniform64_of(i: int) -> float:
    return ((word(2 * i) >> 5) * 2**26 + (word(2 * i + 1) >> 6)) * 2.0**-53


BIT_EXACT = [
    ("bits", int64, word),
    ("bits64", int64, lambda i: (word(2 * i) << 32 | word(2 * i + 1)) >> 1),
    ("uniform", float32, lambda i: (word(i) >> 8) * 2.0**-24),
    ("uniform", float16, lambda i: (word(i) >> 21) * 2.0**-11),
    ("uniform", bfloat16, lambda i: (word(i) >> 24) * 2.0**-8),
    ("uniform", float64, uniform64_of),
]


@pytest.mark.parametrize(("kind", "dtype", "element"), BIT_EXACT)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 23])
def test_bit_exact_kinds(kind: str, dtype: DType, element: Any, n: int) -> None:
    assert draw(kind, dtype, (n,)).tolist() == [element(i) for i in range(n)]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(float64, 1e-15), (float32, 2.0**-23), (float16, 2.0**-10), (bfloat16, 2.0**-7)]
)
def test_normal_is_box_muller(dtype: DType, tolerance: float) -> None:
    uniform = uniform64_of if dtype is float64 else lambda i: (word(i) >> 8) * 2.0**-24
    expected = []
    for i in range(12):
        radius = math.sqrt(-2 * math.log(1 - uniform(2 * i)))
        angle = 2 * math.pi * uniform(2 * i + 1)
        expected += [radius * math.cos(angle), radius * math.sin(angle)]
    got = draw("normal", dtype, (23,)).astype(np.float64)
    np.testing.assert_allclose(got, expected[:23], rtol=tolerance, atol=1e-15)


def test_elements_are_counted_in_row_major_order() -> None:
    expected = draw("uniform", float32, (5, 3))
    scalar = Operand(int64, (), (), True)
    kernel = BACKEND.compile("random", (Operand(float32, (5, 3), (1, 7)), scalar, scalar), {"kind": "uniform"})
    assert kernel is not None
    buffer = BACKEND.allocate(4 * 24, 0)
    flat = buffer.data.view(np.float32)
    flat[...] = -1
    kernel(buffer, 2, SEED, OFFSET)
    written = np.full(24, -1, np.float32)
    for i in range(5):
        for j in range(3):
            written[2 + i + 7 * j] = expected[i, j]
    assert flat.tolist() == written.tolist()


@pytest.mark.parametrize("dtype", [float32, float64])
@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_chunks_join(kind: str, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw(kind, dtype, (1001,))
    monkeypatch.setattr(random, "CHUNK", 7)
    assert np.array_equal(draw(kind, dtype, (1001,)), whole)


def test_seed_and_offset_both_matter() -> None:
    draws = [draw("bits", int64, (4,), seed, offset).tolist() for seed in (0, 1, 2**32) for offset in (0, 1, 2**32)]
    assert len({tuple(d) for d in draws}) == len(draws)


@pytest.mark.parametrize("dtype", [float64, float32, float16, bfloat16])
def test_moments(dtype: DType) -> None:
    n = 100_000
    u = draw("uniform", dtype, (n,)).astype(np.float64)
    step = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(dtype.name, 0)
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - (0.5 - step / 2)) < 5 * (1 / 12 / n) ** 0.5
    assert abs(u.var() - 1 / 12) < 1e-3
    z = draw("normal", dtype, (n,)).astype(np.float64)
    assert np.isfinite(z).all()
    assert abs(z.mean()) < 5 / n**0.5
    assert abs(z.var() - 1) < 0.03
    assert abs((z**3).mean()) < 0.06
    assert abs((z**4).mean() - 3) < 0.15
    assert abs(float(statistics.correlation(z[0::2].tolist(), z[1::2].tolist()))) < 0.03


def test_unknown_kinds_have_no_kernel() -> None:
    scalar = Operand(int64, (), (), True)
    assert BACKEND.compile("random", (Operand(int64, (2,), (1,)), scalar, scalar), {"kind": "normal"}) is None
