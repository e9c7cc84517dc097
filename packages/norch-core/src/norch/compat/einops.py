"""What einops asks of a framework, for norch's tensors. It is imported when einops is, which asks all subclasses."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from einops._backends import AbstractBackend

from ..ops import cat, stack
from ..ops.creation import arange
from ..ops.from_data import from_numpy
from ..ops.matrix.einsum import einsum
from ..tensor import Tensor


class NorchBackend(AbstractBackend):  # type: ignore[misc,unused-ignore]
    framework_name = "norch"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        out = from_numpy(x)
        return out.requires_grad_() if self.is_float_type(out) else out

    def to_numpy(self, x: Tensor) -> Any:
        return x.detach().cpu().numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        return arange(start, stop)

    def reduce(self, x: Tensor, operation: str, reduced_axes: Any) -> Any:
        names = {"min": "amin", "max": "amax"}
        if operation not in ("min", "max", "sum", "mean", "prod", "any", "all"):
            raise NotImplementedError(f"einops: unknown reduction {operation!r}")
        return getattr(x, names.get(operation, operation))(dim=tuple(reduced_axes))

    def transpose(self, x: Tensor, axes: Any) -> Tensor:
        return x.permute(*axes)

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        return stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return x.unsqueeze(new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: dict[int, int]) -> Tensor:
        sizes = [-1] * n_axes
        for position, length in pos2len.items():
            x = x.unsqueeze(position)
            sizes[position] = length
        return x.expand(*sizes)

    def tile(self, x: Tensor, repeats: Any) -> Tensor:
        return x.repeat(*repeats)

    def concat(self, tensors: list[Tensor], axis: int) -> Tensor:
        return cat(tensors, axis)

    def is_float_type(self, x: Tensor) -> bool:
        return x.is_floating_point()

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        return einsum(pattern, *x)

    def layers(self) -> Any:
        return import_module("einops.layers.norch")
