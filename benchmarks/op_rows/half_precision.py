"""bfloat16, and float16, without autocast."""

from __future__ import annotations

from typing import Any

from .inputs import Op, sources


def rows(op: Op, lib: Any, device: str) -> None:
    normal, _, integers = sources(lib, device)
    functional = lib.nn.functional

    def images() -> Any:
        return normal(16, 64, 64, 64).bfloat16()

    op("bf16 zeros", lambda: lib.zeros(16, 64, 64, 64, dtype=lib.bfloat16, device=device), grad=False)
    op("bf16 pad", lambda x: functional.pad(x, (2, 2, 2, 2)), images)
    op("bf16 sum dim 1", lambda x: x.sum(1), images)
    op("bf16 rows of 24 add", lambda x, y: x + y, lambda: normal(65536, 24).bfloat16(), lambda: normal(24).bfloat16())
    op("bf16 softmax dim 1", lambda x: x.softmax(1), images)
    op("bf16 log_softmax dim 1", lambda x: x.log_softmax(1), images)
    op(
        "bf16 cross_entropy of images",
        functional.cross_entropy,
        lambda: normal(4, 21, 128, 128).bfloat16(),
        lambda: integers(21, 4, 128, 128),
    )
    op("bf16 global max", lambda x: functional.adaptive_max_pool2d(x, 1), images)
    op("bf16 max_pool2d 3 s2", lambda x: functional.max_pool2d(x, 3, 2, 1), images)
    op(
        "bf16 embedding",
        lambda w, i: functional.embedding(i, w),
        lambda: normal(20000, 256).bfloat16(),
        lambda: integers(20000, 64, 128),
    )
    op("bf16 index_select", lambda x, i: x.index_select(2, i), images, lambda: integers(64, 32))
    op("bf16 dropout", lambda x: functional.dropout(x, 0.1), images)
    op("half dropout", lambda x: functional.dropout(x, 0.1), lambda: normal(16, 64, 64, 64).half())
    op(
        "bf16 conv2d 7 s2 3-64",
        lambda x, w: functional.conv2d(x, w, None, 2, 3),
        lambda: normal(4, 3, 128, 128).bfloat16(),
        lambda: normal(64, 3, 7, 7).bfloat16(),
    )
    op(
        "bf16 conv_transpose2d 4 of 1x1",
        functional.conv_transpose2d,
        lambda: normal(16, 100, 1, 1).bfloat16(),
        lambda: normal(100, 512, 4, 4).bfloat16(),
    )
