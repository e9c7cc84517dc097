"""Products and their kin."""

from __future__ import annotations

from typing import Any

from .inputs import Op, sources


def rows(op: Op, lib: Any, device: str) -> None:
    normal, _, _ = sources(lib, device)
    functional = lib.nn.functional
    op("outer/kron", lib.kron, lambda: normal(64, 64), lambda: normal(32, 32))
    op("tensordot", lambda a, b: lib.tensordot(a, b, 2), lambda: normal(64, 32, 128), lambda: normal(32, 128, 64))
    op(
        "einsum bhid,bhjd",
        lambda a, b: lib.einsum("bhid,bhjd->bhij", a, b),
        lambda: normal(16, 8, 256, 64),
        lambda: normal(16, 8, 256, 64),
    )
    op(
        "einsum relpos",
        lambda a, b: lib.einsum("bhyxd,yjd->bhyxj", a, b),
        lambda: normal(64, 8, 16, 16, 32),
        lambda: normal(16, 16, 32),
    )
    op(
        "einsum bilinear",
        lambda a, w, b: lib.einsum("bi,oij,bj->bo", a, w, b),
        lambda: normal(1024, 64),
        lambda: normal(32, 64, 64),
        lambda: normal(1024, 64),
    )
    op(
        "bilinear",
        lambda a, b, w: functional.bilinear(a, b, w),
        lambda: normal(1024, 64),
        lambda: normal(1024, 64),
        lambda: normal(32, 64, 64),
    )
    op("bmm small", lib.bmm, lambda: normal(4096, 16, 16), lambda: normal(4096, 16, 16))
    op("bmm 8x8 200k", lib.bmm, lambda: normal(200000, 3, 3), lambda: normal(200000, 3, 3))
    op("matmul double 1024", lib.matmul, lambda: normal(1024, 1024).double(), lambda: normal(1024, 1024).double())
    op("matmul mv", lib.mv, lambda: normal(8192, 8192), lambda: normal(8192))
    op("addmm 4096x1000x1000", lib.addmm, lambda: normal(1000), lambda: normal(4096, 1000), lambda: normal(1000, 1000))
    op("matmul skinny k=1M", lib.matmul, lambda: normal(16, 1 << 20), lambda: normal(1 << 20, 16))
    op("matmul bf16 4096x511", lib.matmul, lambda: normal(4096, 511).bfloat16(), lambda: normal(511, 333).bfloat16())
