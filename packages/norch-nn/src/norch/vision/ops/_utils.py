"""What the ops on boxes share: dtypes in which areas do not overflow, and boxes with the number of their image."""

from __future__ import annotations

from collections.abc import Sequence

import norch
from norch import nn
from norch.nn.normalization import _NormBase

_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm)


def _upcast(t: norch.Tensor) -> norch.Tensor:
    """float32 or float64, int32 or int64: halves and small integers would overflow in products."""
    if t.is_floating_point():
        return t if t.dtype in (norch.float32, norch.float64) else t.float()
    return t if t.dtype in (norch.int32, norch.int64) else t.int()


def _upcast_non_float(t: norch.Tensor) -> norch.Tensor:
    """float32 or float64."""
    return t if t.dtype in (norch.float32, norch.float64) else t.float()


def check_roi_boxes_shape(boxes: norch.Tensor | Sequence[norch.Tensor]) -> None:
    """Raises ShapeError for other than (k, 5), or (l, 4) for each image."""
    if isinstance(boxes, norch.Tensor):
        if boxes.ndim != 2 or boxes.shape[1] != 5:
            raise norch.ShapeError(
                f"boxes of one tensor must be (k, 5), the image's number first; got {tuple(boxes.shape)}"
            )
    elif not isinstance(boxes, list | tuple):
        raise norch.DTypeError(f"boxes must be a tensor (k, 5) or a list of tensors (l, 4), got {type(boxes).__name__}")
    elif any(part.ndim != 2 or part.shape[1] != 4 for part in boxes):
        shapes = ", ".join(str(tuple(part.shape)) for part in boxes)
        raise norch.ShapeError(f"boxes of a list must be (l, 4) for each image, got {shapes}")


def convert_boxes_to_roi_format(boxes: Sequence[norch.Tensor]) -> norch.Tensor:
    """Boxes (l, 4) of each image as one tensor (k, 5), the image's number first."""
    return norch.cat([norch.cat([norch.full_like(b[:, :1], i), b], dim=1) for i, b in enumerate(boxes)])


def split_normalization_params(
    model: nn.Module, norm_classes: Sequence[type] | None = None
) -> tuple[list[norch.Tensor], list[norch.Tensor]]:
    """The parameters that want gradients: those of norms, and all others.

    norm_classes: what is a norm, by default those of norch.nn. Raises ValueError for what is no class of modules.
    """
    classes = tuple(norm_classes or _NORMS)
    for kind in classes:
        if not issubclass(kind, nn.Module):
            raise ValueError(f"split_normalization_params(): {kind} is no class of modules")
    norms, others = list[norch.Tensor](), list[norch.Tensor]()
    for module in model.modules():
        leaf = next(iter(module.children()), None) is None
        found = norms if leaf and isinstance(module, classes) else others
        found.extend(p for p in module.parameters(recurse=False) if p.requires_grad)
    return norms, others
