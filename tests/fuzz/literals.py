"""Random shapes, values and tensors, written as Python: what programs are made of."""

from __future__ import annotations

import math
from math import prod
from random import Random

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int64", "int32", "int16", "int8", "uint8")
DTYPES = (*FLOATS, *INTS, "bool")
RANGE = {"int64": 63, "int32": 31, "int16": 15, "int8": 7}
LARGEST = {"float64": 1.7976931348623157e308, "float32": 3.4028234663852886e38, "float16": 65504.0,
           "bfloat16": 3.3895313892515355e38}  # fmt: skip
SMALLEST = {"float64": 2.2250738585072014e-308, "float32": 1.1754943508222875e-38, "float16": 6.103515625e-05,
            "bfloat16": 1.1754943508222875e-38}  # fmt: skip

Shape = tuple[int, ...]


def dtype(r: Random, among: tuple[str, ...] = DTYPES) -> str:
    """float32 as often as all others."""
    return "float32" if "float32" in among and r.random() < 0.5 else r.choice(among)


def shape(r: Random, least: int = 0, most: int = 4) -> Shape:
    """One of few elements; empty ones and dims of 1 among them."""
    ndim = min(max(r.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)), least), most)
    return tuple(r.choice((1, 2, 2, 3, 3, 4, 5) if r.random() < 0.95 else (0, 7, 17)) for _ in range(ndim))


def broadcastable(r: Random, to: Shape) -> Shape:
    """A shape that broadcasts with `to`."""
    made = tuple(1 if r.random() < 0.25 else n for n in to)
    return made[r.randrange(len(made) + 1) :] if r.random() < 0.3 else made


def number(r: Random, kind: str, mood: str) -> float | int | bool:
    """A value of a dtype. mood: "plain", "special", "infinite", "ties" or "wide"."""
    if kind == "bool":
        return r.random() < 0.5
    if kind in INTS:
        low, high = (0, 255) if kind == "uint8" else (-(2 ** RANGE[kind]), 2 ** RANGE[kind] - 1)
        if mood == "special" and r.random() < 0.3:
            return r.choice((low, high, 0, -1 if low else 1, low + 1))
        if mood == "wide":
            return r.randint(low, high)
        return r.randint(max(low, -9), 9) if mood != "ties" else r.randint(max(low, -1), 1)
    if mood == "special" and r.random() < 0.35:
        big, small = LARGEST[kind], SMALLEST[kind]
        return r.choice((math.inf, -math.inf, math.nan, -0.0, 0.0, big, -big, small, -small, small / 4, 1.0, -1.0))
    if mood == "infinite" and r.random() < 0.2:
        return r.choice((math.inf, -math.inf, math.nan, -0.0, 0.0))
    if mood == "wide":
        return math.copysign(10 ** r.uniform(-4, 4), r.random() - 0.5)
    if mood == "ties":
        return r.choice((-1.0, 0.0, 0.5, 1.0, 2.0))
    return round(r.uniform(-3, 3), r.choice((1, 3)))


def mood(r: Random) -> str:
    return r.choice(("plain", "plain", "plain", "special", "ties", "wide"))


def values(r: Random, of: Shape, kind: str, how: str) -> str:
    """Nested lists."""
    if not of:
        return repr(number(r, kind, how))
    return "[" + ", ".join(values(r, of[1:], kind, how) for _ in range(of[0])) + "]"


def plain(r: Random, of: Shape, kind: str, how: str | None = None) -> str:
    """A contiguous tensor."""
    if 0 in of:
        return f"T.zeros({of}, dtype=T.{kind})"
    if prod(of) > 60:
        scale = "" if kind in INTS or kind == "bool" else f" / {r.choice((1, 4, 8))}"
        modulus = r.choice((3, 17, 31))
        off = 0 if kind in ("uint8", "bool") else modulus // 2
        cast = "" if kind in INTS or kind == "bool" else ".to(T.float64)"
        whole = f"(T.arange({prod(of)}) * {r.choice((7919, 101, 1))} % {modulus} - {off}){cast}{scale}"
        return f"({whole}).to(T.{kind}).reshape({of})"
    return f"T.tensor({values(r, of, kind, how or mood(r))}, dtype=T.{kind})"


def tensor(r: Random, of: Shape, kind: str, how: str | None = None) -> str:
    """A tensor that may lie in memory in any way."""
    layout = r.choice(("plain", "plain", "plain", "transposed", "stepped", "offset", "expanded", "channels_last"))
    how = how or mood(r)
    if layout == "transposed" and len(of) > 1:
        return f"{plain(r, of[::-1], kind, how)}.permute({tuple(range(len(of)))[::-1]})"
    if layout == "stepped" and of and of[-1]:
        return f"{plain(r, (*of[:-1], 2 * of[-1] + 1), kind, how)}[..., 1::2]"
    if layout == "offset" and of and of[0]:
        return f"{plain(r, (of[0] + 2, *of[1:]), kind, how)}[1:-1]"
    if layout == "expanded" and of and of[0]:
        return f"{plain(r, (1, *of[1:]), kind, how)}.expand({of})"
    if layout == "channels_last" and len(of) == 4 and 0 not in of:
        return f"{plain(r, of, kind, how)}.contiguous(memory_format=T.channels_last)"
    return plain(r, of, kind, how)


def scalar(r: Random, kind: str) -> str:
    """A Python number such as one writes beside a tensor of a dtype."""
    if kind == "bool":
        return r.choice(("True", "False", "1", "2"))
    if kind in INTS:
        return r.choice(("2", "-1", "0", "3", "7", "True") if kind != "uint8" else ("2", "1", "0", "3", "7"))
    return r.choice(("2", "0.5", "-1.5", "3.0", "0", "1e-3", "-1", "inf", "nan", "0.1"))
