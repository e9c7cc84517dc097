"""Tables of rows that are looked up by index."""

from __future__ import annotations

from dataclasses import InitVar
from typing import Any, ClassVar, Self

import norch

from . import functional as F
from . import init
from .layer import layer
from .module import Module
from .parameter import Parameter

_EMBEDDING = F.embedding  # unless a program has put another in its place


class _Table(Module):
    padding_idx: int | None
    _defaults: ClassVar[dict[str, Any]]
    """What is printed where it is not the default."""

    def __post_init__(self, sparse: bool, _weight: Any, _freeze: bool, device: Any, dtype: Any) -> None:
        title, shape = type(self).__name__, (self.num_embeddings, self.embedding_dim)
        self.sparse = sparse
        if self.padding_idx is not None:
            if not -shape[0] <= self.padding_idx < shape[0]:
                raise ValueError(f"{title}: padding_idx {self.padding_idx} is not a row of {shape[0]}")
            self.padding_idx %= shape[0]
        if _weight is None:
            self.weight = Parameter(norch.empty(shape, device=device, dtype=dtype), requires_grad=not _freeze)
            self.reset_parameters()
            return
        if not isinstance(_weight, norch.Tensor):
            raise norch.DTypeError(f"{title}: _weight must be a Tensor, got {type(_weight).__name__}")
        if tuple(_weight.shape) != shape:
            raise norch.ShapeError(
                f"{title}: weight {tuple(_weight.shape)} is not (num_embeddings, embedding_dim) = {shape}"
            )
        self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Draws the table again from the normal distribution, and makes the row of padding_idx 0."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            with norch.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def extra_repr(self) -> str:
        shown = [f"{self.num_embeddings}, {self.embedding_dim}"]
        for name, default in self._defaults.items():
            if getattr(self, name) != default:
                shown.append(f"{name}={getattr(self, name)!r}")
        return ", ".join(shown)


@layer()
class Embedding(_Table):
    """The rows of a table that integers name: (*shape) -> (*shape, embedding_dim).

    weight has shape (num_embeddings, embedding_dim) and starts normal. padding_idx: a row that starts 0 and gets no
    gradient. max_norm: rows looked up that are longer, by their `norm_type`-norm, are scaled down, in place.
    scale_grad_by_freq: gradients are divided by how often a row was named. sparse: the gradient is a sparse tensor of
    the rows named, by which `SGD`, `Adagrad` and `SparseAdam` step without reading the others.
    """

    _defaults = {"padding_idx": None, "max_norm": None, "norm_type": 2, "scale_grad_by_freq": False, "sparse": False}

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None = None
    max_norm: float | None = None
    norm_type: float = 2.0
    scale_grad_by_freq: bool = False
    sparse: InitVar[bool] = False
    _weight: InitVar[norch.Tensor | None] = None
    _freeze: InitVar[bool] = False
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        """Raises IndexError for an index that is not a row, DTypeError for input that holds no integers."""
        function = F.embedding
        if self.max_norm is None and not self.scale_grad_by_freq and not self.sparse and function is _EMBEDDING:
            return norch.embedding(input, self.weight, self.padding_idx)
        options = self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        return function(input, self.weight, self.padding_idx, *options)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: norch.Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:
        """A layer with the table `embeddings`, (rows, features), on its memory; not trained if `freeze`. Else
        ShapeError.
        """
        if embeddings.ndim != 2:
            raise norch.ShapeError(f"from_pretrained(): expected (rows, features), got {tuple(embeddings.shape)}")
        rows, features = embeddings.shape
        return cls(
            *(rows, features, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse),
            _weight=embeddings,
            _freeze=freeze,
        )


@layer()
class EmbeddingBag(_Table):
    """Sums, means or maxima of rows of a table, (num_embeddings, embedding_dim): (bags, n), or (n) with offsets, ->
    (bags, embedding_dim).

    See `functional.embedding_bag` for the arguments. Raises ValueError for another `mode`.
    """

    _defaults = {"max_norm": None, "norm_type": 2, "scale_grad_by_freq": False, "mode": None, "padding_idx": None}

    num_embeddings: int
    embedding_dim: int
    max_norm: float | None = None
    norm_type: float = 2.0
    scale_grad_by_freq: bool = False
    mode: str = "mean"
    sparse: InitVar[bool] = False
    _weight: InitVar[norch.Tensor | None] = None
    include_last_offset: bool = False
    padding_idx: int | None = None
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def __post_init__(self, sparse: bool, _weight: Any, device: Any, dtype: Any) -> None:  # type: ignore[override]
        if self.mode not in ("sum", "mean", "max"):
            raise ValueError(f"EmbeddingBag: mode must be 'sum', 'mean' or 'max', got {self.mode!r}")
        super().__post_init__(sparse, _weight, False, device, dtype)

    def forward(
        self,
        input: norch.Tensor,
        offsets: norch.Tensor | None = None,
        per_sample_weights: norch.Tensor | None = None,
    ) -> norch.Tensor:
        return F.embedding_bag(
            *(input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode),
            *(self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx),
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings: norch.Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:
        """A layer with the table `embeddings`, (rows, features), on its memory; not trained if `freeze`. Else
        ShapeError.
        """
        if embeddings.ndim != 2:
            raise norch.ShapeError(f"from_pretrained(): expected (rows, features), got {tuple(embeddings.shape)}")
        rows, features = embeddings.shape
        bag = cls(
            *(rows, features, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings),
            *(include_last_offset, padding_idx),
        )
        bag.weight.requires_grad_(not freeze)
        return bag
