"""Images whose channels lie next to each other."""

from __future__ import annotations

from typing import Any

from .inputs import Op, sources


def rows(op: Op, lib: Any, device: str) -> None:
    normal, _, _ = sources(lib, device)
    functional = lib.nn.functional

    def last(*shape: int) -> Any:
        return normal(*shape).contiguous(memory_format=lib.channels_last)

    def images() -> Any:
        return last(8, 64, 56, 56)

    for channels in (2, 4, 8):
        op(
            f"last conv2d 3, groups of {channels}",
            lambda x, w, groups=64 // channels: functional.conv2d(x, w, padding=1, groups=groups),
            images,
            lambda channels=channels: last(64, channels, 3, 3),
        )
    for channels in (8, 24, 144):
        op(
            f"last conv2d dw 3, {channels} channels",
            lambda x, w, groups=channels: functional.conv2d(x, w, padding=1, groups=groups),
            lambda channels=channels: last(8, channels, 56, 56),
            lambda channels=channels: last(channels, 1, 3, 3),
        )
    op(
        "last conv2d dw 5 s2",
        lambda x, w: functional.conv2d(x, w, None, 2, 2, groups=24),
        lambda: last(8, 24, 56, 56),
        lambda: last(24, 1, 5, 5),
    )
    op("last max_pool2d 3 s2", lambda x: functional.max_pool2d(x, 3, 2, 1), images)
    op("last max_pool2d 5", lambda x: functional.max_pool2d(x, 5, 1, 2), images)
    op("last adaptive_max_pool2d 5", lambda x: functional.adaptive_max_pool2d(x, 5), images)
    op("last avg_pool2d 2", lambda x: functional.avg_pool2d(x, 2), images)
    op("last avg_pool2d 3", lambda x: functional.avg_pool2d(x, 3, 1, 1), images)
    op("last nearest 2x", lambda x: functional.interpolate(x, scale_factor=2), images)
    op("last nearest 56-40", lambda x: functional.interpolate(x, (40, 40)), images)
    op("last pad reflect", lambda x: functional.pad(x, (2, 2, 2, 2), mode="reflect"), images)
    op("last flip", lambda x: x.flip(3), images)
    op("last channel_shuffle 8", lambda x: functional.channel_shuffle(x, 8), images)
    op("last pixel_shuffle 2", lambda x: functional.pixel_shuffle(x, 2), images)
    op("last group_norm", lambda x: functional.group_norm(x, 8), images)
    op("last group_norm, 24 channels", lambda x: functional.group_norm(x, 8), lambda: last(8, 24, 56, 56))
    op("last cat dim 1", lambda x, y: lib.cat([x, y], 1), images, images)
