"""Dropout of elements, of whole channels, and that which keeps mean and variance."""

from __future__ import annotations

import warnings

import norch

_ALPHA = 1.0507009873554804934193349852946 * 1.6732632423543772848170429916717
"""Minus the least value of selu, which alpha dropout sets elements to."""


def dropout(input: norch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> norch.Tensor:
    """`norch.dropout`; into the memory of `input` if `inplace`."""
    if inplace and training and p:
        return input.copy_(norch.dropout(input, p))
    return norch.dropout(input, p, training)


def _channels(op: str, input: norch.Tensor, p: float, allowed: tuple[int, int]) -> norch.Tensor:
    """Ones in the shape (n, c, 1, ...) of the channels of `input`, whose first dim may be missing."""
    if not 0 <= p <= 1:
        raise ValueError(f"{op}(): p must be from 0 to 1, got {p}")
    if input.ndim not in allowed:
        raise norch.ShapeError(f"{op}(): expected {allowed[0]} or {allowed[1]} dims, got shape {tuple(input.shape)}")
    lead = 2 if input.ndim == allowed[1] else 1
    return input.new_ones((*input.shape[:lead], *(1,) * (input.ndim - lead)))


def _dropped(
    op: str, input: norch.Tensor, p: float, training: bool, inplace: bool, allowed: tuple[int, int]
) -> norch.Tensor:
    ones = _channels(op, input, p, allowed)
    if not training or not p:
        return input
    kept = norch.dropout(ones, p)
    return input.mul_(kept) if inplace else input * kept


def dropout1d(input: norch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> norch.Tensor:
    """Each channel of (n, c, w) or (c, w) 0 with probability `p`, the others over 1 - p (Tompson et al., 2015).

    Raises ShapeError for another number of dims, ValueError for a `p` outside [0, 1].
    """
    return _dropped("dropout1d", input, p, training, inplace, (2, 3))


def dropout2d(input: norch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> norch.Tensor:
    """Each channel of (n, c, h, w) 0 with probability `p`, the others over 1 - p. See dropout1d.

    An input of other dims is taken for (n, c, ...), with a warning, as PyTorch does.
    """
    if input.ndim != 4 and input.ndim >= 2:
        warnings.warn(f"dropout2d: input of {input.ndim} dims is taken for (n, c, ...)", stacklevel=2)
        return _dropped("dropout2d", input, p, training, inplace, (input.ndim - 1, input.ndim))
    return _dropped("dropout2d", input, p, training, inplace, (3, 4))


def dropout3d(input: norch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> norch.Tensor:
    """Each channel of (n, c, d, h, w) or (c, d, h, w) 0 with probability `p`. See dropout1d.

    An input of other dims is taken for (c, ...), with a warning, as PyTorch does.
    """
    if input.ndim not in (4, 5) and input.ndim:
        warnings.warn(f"dropout3d: input of {input.ndim} dims is taken for (c, ...)", stacklevel=2)
        return _dropped("dropout3d", input, p, training, inplace, (input.ndim, input.ndim + 1))
    return _dropped("dropout3d", input, p, training, inplace, (4, 5))


def _alpha(input: norch.Tensor, like: norch.Tensor, p: float, inplace: bool) -> norch.Tensor:
    """Elements set to -_ALPHA where a draw in the shape of `like` says so, then scaled to mean 0 and variance 1."""
    if p == 1:
        return input.mul_(0.0) if inplace else input * 0.0
    scale = ((_ALPHA * _ALPHA * p + 1) * (1 - p)) ** -0.5
    kept = norch.bernoulli(like, 1 - p)
    shift = (kept - 1) * (_ALPHA * scale) + _ALPHA * scale * p
    kept = kept * scale
    return input.mul_(kept).add_(shift) if inplace else input * kept + shift


def alpha_dropout(input: norch.Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> norch.Tensor:
    """Dropout to the least value of selu, that keeps mean 0 and variance 1 (Klambauer et al., 2017). Shape kept.

    Raises ValueError for a `p` outside [0, 1].
    """
    if not 0 <= p <= 1:
        raise ValueError(f"alpha_dropout(): p must be from 0 to 1, got {p}")
    return _alpha(input, input, p, inplace) if training and p else input


def feature_alpha_dropout(
    input: norch.Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> norch.Tensor:
    """`alpha_dropout` of whole channels of (n, c, ...), raising as it does, and ShapeError for fewer dims."""
    if not 0 <= p <= 1:
        raise ValueError(f"feature_alpha_dropout(): p must be from 0 to 1, got {p}")
    if not training or not p:
        return input
    if input.ndim < 2:
        raise norch.ShapeError(f"feature_alpha_dropout(): expected (n, c, ...), got shape {tuple(input.shape)}")
    like = input.detach()[(slice(None), slice(None), *(slice(0, 1),) * (input.ndim - 2))]
    return _alpha(input, like, p, inplace)
