"""Images and sequences at another size."""

from __future__ import annotations

import warnings
from typing import Any

import norch

interpolate = norch.interpolate


def upsample(
    input: norch.Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None
) -> norch.Tensor:
    """`interpolate`, under its old name, which warns."""
    warnings.warn("upsample() is deprecated: use interpolate()", FutureWarning, stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: norch.Tensor, size: Any = None, scale_factor: Any = None) -> norch.Tensor:
    """`interpolate` in mode "nearest", under its old name, which warns."""
    warnings.warn("upsample_nearest() is deprecated: use interpolate()", FutureWarning, stacklevel=2)
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input: norch.Tensor, size: Any = None, scale_factor: Any = None) -> norch.Tensor:
    """`interpolate` in mode "bilinear" with align_corners, under its old name, which warns."""
    warnings.warn("upsample_bilinear() is deprecated: use interpolate()", FutureWarning, stacklevel=2)
    return interpolate(input, size, scale_factor, "bilinear", True)
