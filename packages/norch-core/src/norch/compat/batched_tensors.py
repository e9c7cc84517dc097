"""What programs ask of `vmap`'s tensors under the names of `torch._C._functorch` and `torch._functorch.vmap`.

PyTorch counts its levels from 1, and so do these: the depth of norch's `Level`, and 1.
"""

from __future__ import annotations

from typing import Any

from ..func.batched import Batched, Level, batched, current_levels, physical
from ..func.mapping import vmap as vmap
from ..tensor import Tensor as Tensor


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor, of any shape and dtype, is one sample of a `vmap`."""
    return isinstance(tensor, Batched)


is_functorch_wrapped_tensor = is_batchedtensor


def is_gradtrackingtensor(tensor: Any) -> bool:
    """False: derivatives are those of autograd, which wraps no tensors."""
    return False


is_functionaltensor = is_legacy_batchedtensor = is_dead_tensor_wrapper = is_gradtrackingtensor


def are_transforms_active() -> bool:
    """Whether a `vmap` runs here."""
    return bool(current_levels.get())


def maybe_current_level() -> int | None:
    """The level of the innermost `vmap` that runs here, or None."""
    return len(current_levels.get()) or None


def maybe_get_level(tensor: Any) -> int:
    """The level that a tensor is a sample of, or -1."""
    return tensor.level.depth + 1 if isinstance(tensor, Batched) else -1


def maybe_get_bdim(tensor: Any) -> int:
    """0, the dim that samples are along, or -1 for a tensor that is no sample."""
    return 0 if isinstance(tensor, Batched) else -1


def get_unwrapped(tensor: Any) -> Any:
    """All samples in one tensor, along dim 0; another tensor is itself."""
    return tensor.value if isinstance(tensor, Batched) else tensor


def _add_batch_dim(tensor: Tensor, in_dim: int, level: int) -> Tensor:
    """One sample of a tensor whose dim `in_dim` the samples of a `vmap` that runs here are along."""
    return batched(current_levels.get()[level - 1], tensor if in_dim == 0 else tensor.movedim(in_dim, 0))


def _remove_batch_dim(tensor: Tensor, level: int, batch_size: int, out_dim: int) -> Tensor:
    """All samples of a level in one tensor, along dim `out_dim`; `batch_size` times a tensor that is none of them."""
    found = _level_of(tensor, level)
    out = tensor.expand(batch_size, *tensor.shape) if found is None else physical(tensor, found)
    return out if out_dim == 0 else out.movedim(0, out_dim)


def _wrap_tensor_for_grad(maybe_tensor: Any, level: int) -> Any:
    """What a function that `grad` or `jacrev` differentiates sees of an argument: itself, whose class it keeps."""
    return maybe_tensor


def _level_of(tensor: Any, number: int) -> Level | None:
    """The level of that number that a tensor differs in."""
    while isinstance(tensor, Batched):
        if tensor.level.depth == number - 1:
            return tensor.level
        tensor = tensor.value
    return None


def _maybe_remove_batch_dim(
    name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: int | None
) -> Any:
    """`_remove_batch_dim` of what a function called `name` gave; with `out_dim` None as it is. Raises ValueError for
    None where samples differ, and for what is no tensor."""
    if out_dim is None:
        if _level_of(batched_output, vmap_level) is not None:
            raise ValueError(f"vmap({name}, ...): out_dim is None for a result that differs from sample to sample")
        return batched_output
    if not isinstance(batched_output, Tensor):
        raise ValueError(f"vmap({name}, ...): {name} must return tensors, got {type(batched_output).__name__}")
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)


def _get_name(func: Any) -> str:
    return getattr(func, "__name__", None) or repr(func)
