"""Reductions and elementwise functions."""

from __future__ import annotations

from typing import Any

from .inputs import Op, sources


def rows(op: Op, lib: Any, device: str) -> None:
    normal, uniform, integers = sources(lib, device)
    functional = lib.nn.functional

    def images() -> Any:
        return normal(16, 64, 128, 128)

    op("sum dim 0", lambda x: x.sum(0), lambda: normal(65536, 256))
    op("sum dim 1 of 3", lambda x: x.sum(1), lambda: normal(64, 1024, 256))
    op("sum (0,2,3)", lambda x: x.sum((0, 2, 3)), images)
    op("mean small last", lambda x: x.mean(-1), lambda: normal(1 << 20, 8))
    op("var", lambda x: x.var(-1), lambda: normal(8192, 1024))
    op("std dim 0", lambda x: x.std(0), lambda: normal(8192, 1024))
    op("norm", lambda x: x.norm(dim=-1), lambda: normal(8192, 1024))
    op("norm all", lambda x: x.norm(), lambda: normal(1 << 24))
    op("max dim", lambda x: x.max(-1)[0], lambda: normal(8192, 1024))
    op("amax dim 1 img", lambda x: x.amax(1), images)
    op("argmax", lambda x: x.argmax(-1), lambda: normal(8192, 1024), grad=False)
    op("argmax dim 1", lambda x: x.argmax(1), lambda: normal(16, 21, 256, 256), grad=False)
    op("prod", lambda x: x.prod(-1), lambda: uniform(8192, 64) + 0.5)
    op("all any", lambda x: x.all(-1), lambda: uniform(8192, 1024).gt(0.1), grad=False)
    op("sum bool", lambda x: x.sum(), lambda: uniform(8192, 1024).gt(0.1), grad=False)
    op("isnan any", lambda x: x.isnan().any(), lambda: normal(1 << 24), grad=False)
    op("allclose-like", lambda a, b: lib.isclose(a, b), lambda: normal(1 << 22), lambda: normal(1 << 22), grad=False)
    op("clamp", lambda x: x.clamp(-1, 1), lambda: normal(1 << 22))
    op("lerp", lambda x, y: lib.lerp(x, y, 0.3), lambda: normal(1 << 22), lambda: normal(1 << 22))
    op(
        "addcmul",
        lambda x, y, z: lib.addcmul(x, y, z),
        lambda: normal(1 << 22),
        lambda: normal(1 << 22),
        lambda: normal(1 << 22),
    )
    op("pow 2", lambda x: x**2, lambda: normal(1 << 22))
    op("pow 1.5", lambda x: x**1.5, lambda: uniform(1 << 22))
    op("pow t", lib.pow, lambda: uniform(1 << 22), lambda: normal(1 << 22))
    op("atan2", lib.atan2, lambda: normal(1 << 22), lambda: normal(1 << 22))
    op("erfinv", lib.erfinv, lambda: uniform(1 << 22) * 0.9)
    op("lgamma", lib.lgamma, lambda: uniform(1 << 22) + 0.5)
    op("digamma", lib.digamma, lambda: uniform(1 << 22) + 0.5)
    op("i0", lib.i0, lambda: uniform(1 << 22))
    op("sinc", lib.sinc, lambda: uniform(1 << 22))
    op("fmod", lambda x: lib.fmod(x, 0.3), lambda: normal(1 << 22), grad=False)
    op("remainder int", lambda x: x % 7, lambda: integers(1000, 1 << 22), grad=False)
    op("bit shift", lambda x: x >> 2 & 3, lambda: integers(1000, 1 << 22), grad=False)
    op("prelu", functional.prelu, images, lambda: uniform(64))
    for name in ("exp", "tan", "asin", "atan", "sinh", "acosh", "atanh", "exp2"):
        op(f"double {name}", getattr(lib, name), lambda add=name == "acosh": uniform(1 << 20).double() * 0.9 + add)
    op("double pow", lib.pow, lambda: uniform(1 << 20).double(), lambda: normal(1 << 20).double())
    op("double atan2", lib.atan2, lambda: normal(1 << 20).double(), lambda: normal(1 << 20).double())
    op("half add", lib.add, lambda: normal(1 << 22).half(), lambda: normal(1 << 22).half())
    op("bf16 gelu", functional.gelu, lambda: normal(1 << 22).bfloat16())
    op("cast bf16", lambda x: x.bfloat16(), lambda: normal(1 << 22))
    op(
        "cast uint8 to float /255",
        lambda x: x.float() / 255,
        lambda: integers(256, 16, 3, 256, 256).to(lib.uint8),
        grad=False,
    )
    op("channels_last", lambda x: x.contiguous(memory_format=lib.channels_last), images)
