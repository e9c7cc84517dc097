"""What PyTorch's functions of layers and of views are called below `torch.nn.functional`. Loaded when first used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .. import ops
from ..dispatch.arguments import check_functions
from ..dtype import bool_, float32, float64
from ..errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..tensor import Tensor

# --- Layers that give what their gradients need ---------------------------------------------------------------------


def _statistics(x: Tensor, dims: tuple[int, ...], eps: float, keepdim: bool) -> tuple[Tensor, Tensor]:
    wide = x if x.dtype is float64 else x.to(float32)
    variance, mean = ops.var_mean(wide, dims, correction=0, keepdim=keepdim)
    return mean.to(x.dtype), (variance + eps).rsqrt().to(x.dtype)


def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`layer_norm`, and the mean and 1 / sqrt(variance + eps) that it divides by, whose last dims have size 1. Raises
    as that does.
    """
    shape = tuple(normalized_shape)
    out = ops.layer_norm(input, shape, weight, bias, eps)
    return out, *_statistics(input, tuple(range(-len(shape), 0)), eps, True)


def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`group_norm` of N images of C channels and HxW pixels, and the mean and 1 / sqrt(variance + eps) of each group,
    (N, group). Raises as that does, and ShapeError for another number of elements.
    """
    if input.numel() != N * C * HxW:
        raise ShapeError(f"native_group_norm(): shape {tuple(input.shape)} has not {N} x {C} x {HxW} elements")
    out = ops.group_norm(input, group, weight, bias, eps)
    return out, *_statistics(input.reshape(N, group, C // group * HxW), (-1,), eps, False)


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """`dropout`, unless `train` is False, and the bool mask of what stays. Raises as that does."""
    if train is False:
        return input.clone(), ops.ones(input.shape, dtype=bool_, device=input.device)
    kept = ops.dropout(ops.ones_like(input), p)
    return input * kept, kept != 0


_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sample`, whose modes are numbers. Raises as that does, ValueError for another number.

    interpolation_mode: 0 to 2 for bilinear, nearest and bicubic. padding_mode: 0 to 2 for zeros, border and reflection.
    """
    if interpolation_mode not in (0, 1, 2) or padding_mode not in (0, 1, 2):
        raise ValueError(f"grid_sampler(): modes are 0, 1 or 2, got {interpolation_mode} and {padding_mode}")
    sample: Any = ops.grid_sample
    return sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)  # type: ignore[no-any-return]


def nuclear_norm(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum of the singular values of matrices in the last two dims or in `dim`. PyTorch has deprecated it: use
    `linalg.matrix_norm(x, "nuc")`.
    """
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    norm: Tensor = import_module("norch.linalg").matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim)
    return norm


def _unique2(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """`unique`, its inverse and its counts, which have no elements where they are not asked for."""
    values, inverse, counts = ops.unique(input, return_inverse=True, return_counts=True)
    return values, inverse if return_inverse else inverse.new_empty(0), counts if return_counts else counts.new_empty(0)


def _unique(input: Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, Tensor]:
    """`unique` and its inverse, which has no elements where it is not asked for."""
    return _unique2(input, sorted, return_inverse)[:2]


# --- Recurrent layers -----------------------------------------------------------------------------------------------


def _recurrent(name: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        if find_spec("norch.nn") is None:
            raise NotImplementedError(f"{name}() comes with norch-nn: pip install norch-nn")
        return getattr(import_module("norch._VF"), name)(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`norch._VF.{name}`, of norch-nn. Raises NotImplementedError where that is not installed."
    return function


lstm, gru, rnn_tanh, rnn_relu = map(_recurrent, ("lstm", "gru", "rnn_tanh", "rnn_relu"))
lstm_cell, gru_cell, rnn_tanh_cell, rnn_relu_cell = map(
    _recurrent, ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
)


# --- Loss scaling ---------------------------------------------------------------------------------------------------


def _amp_foreach_non_finite_check_and_unscale_(grads: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiplies gradients by `inv_scale`, in place; `found_inf` becomes 1 where one of them was not finite."""
    for grad in grads:
        found_inf.copy_(ops.maximum(found_inf, grad.isfinite().all().logical_not().to(found_inf.dtype)))
        grad.mul_(inv_scale.to(grad.device))


def _amp_update_scale_(
    current_scale: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    growth_factor: float,
    backoff_factor: float,
    growth_interval: int,
) -> Tensor:
    """What `GradScaler.update` does to a factor and a count of good steps, in place. Returns the factor."""
    good = growth_tracker + 1
    bad, grows = found_inf != 0, good == growth_interval
    factor = ops.where(bad, backoff_factor, ops.where(grows, growth_factor, 1.0))
    growth_tracker.copy_(ops.where(bad | grows, 0, good))
    return current_scale.copy_(current_scale * factor)


def to_dlpack(tensor: Tensor) -> Any:
    """The memory of a tensor of any shape as a DLPack capsule, for what takes no object with `__dlpack__`. Raises as
    that does.
    """
    return tensor.__dlpack__(max_version=(1, 0))


# --- Views as copies ------------------------------------------------------------------------------------------------


def _copied(name: str, view: Callable[..., Any]) -> Callable[..., Any]:
    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        found = view(input, *args, **kwargs)
        return [x.clone() for x in found] if isinstance(found, tuple | list) else found.clone()

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"What `{name.removesuffix('_copy')}` gives, copied."
    return function


def _slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    at = dim % input.ndim
    return input[(slice(None),) * at + (slice(start, end, step),)]


COPIES = (
    "alias as_strided diagonal expand permute select slice split split_with_sizes squeeze t transpose unbind "
    "unfold unsqueeze view view_as_complex view_as_real"
).split()


def find(name: str) -> Callable[..., Any] | None:
    """The function of that name of views that are copied, such as "view_copy"; None for another."""
    stem = name.removesuffix("_copy")
    if stem == name or stem not in COPIES:
        return None
    known: dict[str, Callable[..., Any]] = {
        "slice": _slice,
        "alias": lambda input: input,
        "unfold": lambda input, *args, **kwargs: input.unfold(*args, **kwargs),
    }
    view = known.get(stem) or getattr(import_module("norch"), stem, None)
    return _copied(name, view or (lambda input, *args, **kwargs: getattr(input, stem)(*args, **kwargs)))


check_functions(globals())
