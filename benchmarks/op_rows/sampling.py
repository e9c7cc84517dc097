"""Images and volumes resampled, rearranged and padded."""

from __future__ import annotations

from typing import Any

from .inputs import Op, grid, sources


def rows(op: Op, lib: Any, device: str) -> None:
    normal, uniform, _ = sources(lib, device)
    functional = lib.nn.functional

    def images() -> Any:
        return normal(16, 64, 128, 128)

    def colours() -> Any:
        return normal(16, 3, 256, 256)

    op(
        "grid_sample 16x64x128x128 flow",
        lambda x, g: functional.grid_sample(x, g, align_corners=True),
        images,
        lambda: grid(lib, device, 16, 128, 128),
    )
    op(
        "grid_sample rgb",
        lambda x, g: functional.grid_sample(x, g, padding_mode="border", align_corners=False),
        colours,
        lambda: grid(lib, device, 16, 256, 256),
    )
    op(
        "grid_sample detr 32x32x80x80 at 300x4",
        lambda x, g: functional.grid_sample(x, g, align_corners=False),
        lambda: normal(32, 32, 80, 80),
        lambda: 2 * uniform(32, 300, 4, 2) - 1,
    )
    op(
        "grid_sample nearest rgb",
        lambda x, g: functional.grid_sample(x, g, mode="nearest", align_corners=False),
        colours,
        lambda: grid(lib, device, 16, 256, 256),
    )
    op(
        "grid_sample bicubic rgb",
        lambda x, g: functional.grid_sample(x, g, mode="bicubic", align_corners=False),
        colours,
        lambda: grid(lib, device, 16, 256, 256),
    )
    op(
        "grid_sample 3d 2x8x64^3",
        lambda x, g: functional.grid_sample(x, g, align_corners=False),
        lambda: normal(2, 8, 64, 64, 64),
        lambda: 2 * uniform(2, 64, 64, 64, 3) - 1,
    )
    op(
        "affine_grid",
        lambda t: functional.affine_grid(t, (16, 3, 256, 256), align_corners=False),
        lambda: normal(16, 2, 3),
    )
    for m in ("nearest", "bilinear", "bicubic", "area"):
        op(f"interpolate {m} x2", lambda x, m=m: functional.interpolate(x, scale_factor=2, mode=m), images)
    op(
        "interpolate bilinear antialias /2",
        lambda x: functional.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
        images,
    )
    op(
        "interpolate trilinear x2",
        lambda x: functional.interpolate(x, scale_factor=2, mode="trilinear"),
        lambda: normal(2, 16, 32, 32, 32),
    )
    op(
        "interpolate linear x2",
        lambda x: functional.interpolate(x, scale_factor=2, mode="linear"),
        lambda: normal(16, 64, 4096),
    )
    op("pixel_shuffle", lambda x: functional.pixel_shuffle(x, 2), lambda: normal(16, 64, 128, 128))
    op("unfold 3x3", lambda x: functional.unfold(x, 3, padding=1), lambda: normal(16, 32, 64, 64))
    op("fold 3x3", lambda x: functional.fold(x, (64, 64), 3, padding=1), lambda: normal(16, 32 * 9, 64 * 64))
    op("pad reflect", lambda x: functional.pad(x, (2, 2, 2, 2), mode="reflect"), images)
    op("pad replicate", lambda x: functional.pad(x, (2, 2, 2, 2), mode="replicate"), images)
    op("pad circular", lambda x: functional.pad(x, (2, 2, 2, 2), mode="circular"), images)
    op("pad constant", lambda x: functional.pad(x, (2, 2, 2, 2)), images)
