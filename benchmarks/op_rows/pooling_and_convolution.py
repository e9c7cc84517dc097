"""Windows of images, signals and volumes."""

from __future__ import annotations

from typing import Any

from .inputs import Op, sources


def rows(op: Op, lib: Any, device: str) -> None:
    normal, _, _ = sources(lib, device)
    functional = lib.nn.functional

    def images() -> Any:
        return normal(16, 64, 128, 128)

    def colours() -> Any:
        return normal(16, 3, 256, 256)

    op("max_pool2d 3 s2", lambda x: functional.max_pool2d(x, 3, 2, 1), images)
    op("avg_pool2d 3 s2", lambda x: functional.avg_pool2d(x, 3, 2, 1), images)
    op("adaptive_avg_pool2d 7", lambda x: functional.adaptive_avg_pool2d(x, 7), images)
    op("adaptive_max_pool2d 7", lambda x: functional.adaptive_max_pool2d(x, 7), images)
    op("global avg", lambda x: functional.adaptive_avg_pool2d(x, 1), images)
    op("lp_pool2d", lambda x: functional.lp_pool2d(x.abs() + 0.1, 2, 2), images)
    op("max_pool3d", lambda x: functional.max_pool3d(x, 2), lambda: normal(2, 32, 32, 64, 64))
    op("avg_pool3d", lambda x: functional.avg_pool3d(x, 2), lambda: normal(2, 32, 32, 64, 64))
    op("max_pool1d", lambda x: functional.max_pool1d(x, 4), lambda: normal(16, 64, 16384))
    op(
        "max_unpool2d",
        lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2),
        lambda: normal(16, 64, 64, 64),
    )
    op(
        "conv_transpose2d 4 s2 64-32",
        lambda x, w: functional.conv_transpose2d(x, w, stride=2, padding=1),
        lambda: normal(16, 64, 64, 64),
        lambda: normal(64, 32, 4, 4),
    )
    op(
        "conv_transpose1d 16 s8",
        lambda x, w: functional.conv_transpose1d(x, w, stride=8, padding=4),
        lambda: normal(8, 256, 512),
        lambda: normal(256, 128, 16),
    )
    op(
        "conv_transpose3d 2 s2",
        lambda x, w: functional.conv_transpose3d(x, w, stride=2),
        lambda: normal(2, 64, 16, 16, 16),
        lambda: normal(64, 32, 2, 2, 2),
    )
    op(
        "conv3d 3 32-32",
        lambda x, w: functional.conv3d(x, w, padding=1),
        lambda: normal(2, 32, 32, 32, 32),
        lambda: normal(32, 32, 3, 3, 3),
    )
    op(
        "conv3d dw 3",
        lambda x, w: functional.conv3d(x, w, padding=1, groups=32),
        lambda: normal(2, 32, 32, 32, 32),
        lambda: normal(32, 1, 3, 3, 3),
    )
    op(
        "conv1d 64-64 k7",
        lambda x, w: functional.conv1d(x, w, padding=3),
        lambda: normal(16, 64, 8192),
        lambda: normal(64, 64, 7),
    )
    op(
        "conv1d 1-64 k16 s8 audio",
        lambda x, w: functional.conv1d(x, w, stride=8),
        lambda: normal(16, 1, 64000),
        lambda: normal(64, 1, 16),
    )
    op(
        "conv1d depthwise k31",
        lambda x, w: functional.conv1d(x, w, padding=15, groups=256),
        lambda: normal(16, 256, 1000),
        lambda: normal(256, 1, 31),
    )
    op(
        "conv2d 7 s2 3-64",
        lambda x, w: functional.conv2d(x, w, stride=2, padding=3),
        colours,
        lambda: normal(64, 3, 7, 7),
    )
    op(
        "conv2d dw 7x7",
        lambda x, w: functional.conv2d(x, w, padding=3, groups=96),
        lambda: normal(16, 96, 56, 56),
        lambda: normal(96, 1, 7, 7),
    )
    op(
        "conv2d groups 32",
        lambda x, w: functional.conv2d(x, w, padding=1, groups=32),
        lambda: normal(16, 256, 28, 28),
        lambda: normal(256, 8, 3, 3),
    )
    op(
        "conv2d 3 3-32",
        lambda x, w: functional.conv2d(x, w, padding=1),
        lambda: normal(16, 3, 64, 64),
        lambda: normal(32, 3, 3, 3),
    )
    op(
        "conv2d 9x9 64-3",
        lambda x, w: functional.conv2d(x, w, padding=4),
        lambda: normal(4, 64, 64, 64),
        lambda: normal(3, 64, 9, 9),
    )
    op(
        "conv2d 7x7 16-1",
        lambda x, w: functional.conv2d(x, w, padding=3),
        lambda: normal(4, 16, 128, 128),
        lambda: normal(1, 16, 7, 7),
    )
    op(
        "conv_transpose2d 4 s2 64-3",
        lambda x, w: functional.conv_transpose2d(x, w, stride=2, padding=1),
        lambda: normal(8, 64, 32, 32),
        lambda: normal(64, 3, 4, 4),
    )
    op(
        "conv2d dilated 4",
        lambda x, w: functional.conv2d(x, w, padding=4, dilation=4),
        lambda: normal(16, 64, 64, 64),
        lambda: normal(64, 64, 3, 3),
    )
    op(
        "conv2d 5x5 32-64",
        lambda x, w: functional.conv2d(x, w, padding=2),
        lambda: normal(16, 32, 64, 64),
        lambda: normal(64, 32, 5, 5),
    )
    op(
        "conv2d 3x3 64",
        lambda x, w: functional.conv2d(x, w, padding=1),
        lambda: normal(16, 64, 64, 64),
        lambda: normal(64, 64, 3, 3),
    )
    op(
        "conv2d 1x1 256-64",
        lambda x, w: functional.conv2d(x, w),
        lambda: normal(16, 256, 56, 56),
        lambda: normal(64, 256, 1, 1),
    )
    op(
        "conv2d double",
        lambda x, w: functional.conv2d(x, w, padding=1),
        lambda: normal(4, 16, 32, 32).double(),
        lambda: normal(16, 16, 3, 3).double(),
    )
