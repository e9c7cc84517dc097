"""The same elements elsewhere in memory."""

from __future__ import annotations

from typing import Any

from .inputs import Op, sources


def rows(op: Op, lib: Any, device: str) -> None:
    normal, _, integers = sources(lib, device)

    def images() -> Any:
        return normal(16, 64, 128, 128)

    op("repeat_interleave 4", lambda x: x.repeat_interleave(4, 0), lambda: normal(4096, 256))
    op(
        "repeat_interleave tensor",
        lambda x, r: x.repeat_interleave(r, 0),
        lambda: normal(4096, 256),
        lambda: integers(8, 4096),
    )
    op("repeat", lambda x: x.repeat(4, 4), lambda: normal(512, 512))
    op("tile expand sum", lambda x: x.expand(-1, 64, -1).contiguous(), lambda: normal(512, 1, 512))
    op("roll", lambda x: x.roll((3, 3), (1, 2)), lambda: normal(16, 56, 56, 96))
    op("flip", lambda x: x.flip(-1), images)
    op("rot90", lambda x: lib.rot90(x, 1, (2, 3)), images)
    op("permute contiguous", lambda x: x.permute(0, 2, 3, 1).contiguous(), images)
    op("permute 5d window", lambda x: x.permute(0, 1, 3, 2, 4, 5).contiguous(), lambda: normal(16, 8, 7, 8, 7, 96))
    op(
        "qkv split",
        lambda x: [q.contiguous() for q in x.permute(2, 0, 3, 1, 4).unbind(0)],
        lambda: normal(16, 1024, 3, 12, 64),
    )
    op("cat dim 1", lambda x, y: lib.cat([x, y], 1), images, images)
    op("cat many", lambda x: lib.cat([x[i] for i in range(64)]), lambda: normal(64, 4096))
    op("stack", lambda x, y: lib.stack([x, y], -1), lambda: normal(4096, 256), lambda: normal(4096, 256))
    op("chunk cat", lambda x: lib.cat(x.chunk(4, 1)[::-1], 1), images)
    op("tril", lambda x: x.tril(), lambda: normal(64, 512, 512))
    op("diag_embed", lambda x: lib.diag_embed(x), lambda: normal(256, 256))
    op("diagonal", lambda x: x.diagonal(dim1=1, dim2=2).contiguous(), lambda: normal(256, 256, 256))
