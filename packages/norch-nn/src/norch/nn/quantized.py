"""Layers whose weights are kept in 8 or 4 bits, for inference: `quantize_` puts them in the place of a model's own.

format: "int8", with a scale for each row, or GGUF's blocks "q8_0" and "q4_0", as `norch.quantize_weight` has them.
Weights, scales and biases are buffers: they move and are saved with a model, and are not trained. What
`load_state_dict` is given may be a floating weight, which is quantised, or one of any format, which the layer then has.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Self

import norch

from .embedding import Embedding as FloatEmbedding
from .linear import Linear as FloatLinear
from .module import Module


class _Quantized(Module):
    """A layer on a weight of (rows, features). The scale is None for blocks, which hold theirs."""

    weight: norch.Tensor
    scale: norch.Tensor | None

    def __init__(self, rows: int, features: int, format: str, device: Any) -> None:
        super().__init__()
        self._features = features
        self._set(*norch.quantize_weight(norch.zeros((rows, features), device=device), format), format)

    def _set(self, weight: norch.Tensor, scale: norch.Tensor | None, format: str) -> None:
        self.register_buffer("weight", None)
        self.register_buffer("scale", None)
        self.weight, self.scale, self.format = weight, scale, format

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Has the weight in `state_dict` quantised, and the layer in the format of it."""
        super()._load_from_state_dict(state_dict, prefix, *rest)
        given = state_dict.get(prefix + "weight")
        if given is None:
            return
        weight = norch.as_tensor(given)
        if weight.dtype.is_floating_point and tuple(weight.shape) == (self.weight.shape[0], self._features):
            state_dict[prefix + "weight"], scale = norch.quantize_weight(weight, self.format)
            if scale is not None:
                state_dict[prefix + "scale"] = scale
            return
        for format, dtype, columns in _layouts(self._features):
            if format != self.format and weight.dtype is dtype and weight.shape[-1:] == (columns,):
                numbers = norch.dequantize_weight(self.weight, self.scale, features=self._features)
                self._set(*norch.quantize_weight(numbers, format), format)


def _layouts(features: int) -> list[tuple[str, norch.DType, int]]:
    """The formats, and the dtype and the size of a row of each."""
    blocks, rest = divmod(features, 32)
    layouts = [("int8", norch.int8, features)]
    return layouts if rest else [*layouts, ("q8_0", norch.uint8, 34 * blocks), ("q4_0", norch.uint8, 18 * blocks)]


class Linear(_Quantized):
    """x @ w.T + bias for a quantised weight: (*, in_features) to (*, out_features), see `norch.quantized_linear`.

    weight, scale: as `norch.quantize_weight` gives them; at first 0, as is bias, which `bias=False` leaves out.
    dtype: of the bias.
    """

    bias: norch.Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        format: str = "int8",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(out_features, in_features, format, device)
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("bias", norch.zeros(out_features, device=device, dtype=dtype) if bias else None)

    @classmethod
    def from_float(cls, mod: FloatLinear, format: str = "int8") -> Self:
        """The layer that computes what `mod`, an nn.Linear, does, as far as the format allows."""
        self = cls(mod.in_features, mod.out_features, False, format, "meta")
        self._set(*norch.quantize_weight(mod.weight, format), format)
        self.bias = None if mod.bias is None else mod.bias.detach()
        self.training = mod.training
        return self

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        """Raises ShapeError where the last dim of `input` is not in_features."""
        return norch.quantized_linear(input, self.weight, self.scale, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"format={self.format!r}"
        )


class Embedding(_Quantized):
    """The rows of a quantised table that integers name: (*shape) -> (*shape, embedding_dim), in `dtype`.

    weight, scale: as `norch.quantize_weight` gives them; at first 0.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, format: str = "int8", device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, format, device)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        # It has the dtype of the results, which changes with that of the model.
        self.register_buffer("_like", norch.zeros(0, device=device, dtype=dtype), persistent=False)

    @classmethod
    def from_float(cls, mod: FloatEmbedding, format: str = "int8") -> Self:
        """The layer that gives the rows that `mod`, an nn.Embedding, does, as far as the format allows."""
        self = cls(mod.num_embeddings, mod.embedding_dim, format, "meta")
        self._set(*norch.quantize_weight(mod.weight, format), format)
        self._like = mod.weight.new_zeros(0)
        self.training = mod.training
        return self

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        """Raises IndexError for an index that is no row, DTypeError for input that holds no integers."""
        scale = None if self.scale is None else norch.embedding(input, self.scale.unsqueeze(-1)).squeeze(-1)
        rows = norch.embedding(input, self.weight)
        return norch.dequantize_weight(rows, scale, features=self.embedding_dim).to(self._like.dtype)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, format={self.format!r}"


def quantize_(model: Module, format: str = "int8", filter_fn: Callable[[Module, str], bool] | None = None) -> Module:
    """Puts quantised layers in the place of every nn.Linear and nn.Embedding of a model, whose weights they have.

    Weights that layers share are shared again. Not replaced are layers of other classes, such as the projections within
    MultiheadAttention, ones that have hooks, and an Embedding with `max_norm`. filter_fn: of the others only those that
    it is true for; it gets each, and its dotted name. Returns the model, or, if that is such a layer, the new one.

    Raises ValueError for another format, ShapeError for a layer whose features are no multiple of 32 where the format
    has blocks; then nothing is replaced.
    """
    kinds: dict[type, Any] = {FloatLinear: Linear, FloatEmbedding: Embedding}
    made: dict[Module, Any] = {}
    first: dict[int, Any] = {}
    places = list(model.named_modules(remove_duplicate=False))
    for name, part in places:
        is_free = part._hooks is None and getattr(part, "max_norm", None) is None
        if type(part) not in kinds or part in made or not is_free or not (filter_fn is None or filter_fn(part, name)):
            continue
        try:
            made[part] = new = kinds[type(part)].from_float(part, format)
        except norch.ShapeError as error:
            raise norch.ShapeError(f"quantize_(): {name or 'the model'}: {error}") from None
        same = first.setdefault(id(part.weight), new)
        if same is not new:
            new._set(same.weight, same.scale, format)
    for name, part in places:
        if part in made and name:
            model.set_submodule(name, made[part])
    found: Module = made.get(model, model)
    return found


_late = norch.late_submodules(__name__)


def __getattr__(name: str) -> Any:
    return import_module("norch.nn.quantizing").FloatFunctional if name == "FloatFunctional" else _late(name)
