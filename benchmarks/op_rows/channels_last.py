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
    for name, batch, channels, groups, size, taps in (
        ("dw 7, 14 x 14", 4, 384, 384, 14, 7),
        ("dw 3, 14 x 14", 4, 576, 576, 14, 3),
        ("3, groups of 16", 4, 512, 32, 14, 3),
        ("3, 512 of 7 x 7", 4, 512, 1, 7, 3),
        ("3, 4 to 64", 4, 4, 1, 64, 3),
    ):
        results = 64 if channels == 4 else channels
        for kind in (lib.float32, lib.bfloat16):
            op(
                f"last conv2d {name}" + " bfloat16" * (kind is lib.bfloat16),
                lambda x, w, groups=groups, taps=taps: functional.conv2d(x, w, padding=taps // 2, groups=groups),
                lambda shape=(batch, channels, size, size), kind=kind: last(*shape).to(dtype=kind),
                lambda shape=(results, channels // groups, taps, taps), kind=kind: last(*shape).to(dtype=kind),
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
