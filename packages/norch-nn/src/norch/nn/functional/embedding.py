"""Rows of a table by index, alone and in bags."""

from __future__ import annotations

from typing import Any

import norch


class _SparseGradient(norch.autograd.Function):
    """Rows of a table, or their sums in bags, of which the table's gradient is a sparse tensor of the rows named."""

    @staticmethod
    def forward(ctx: Any, weight: Any, input: Any, padding_idx: int | None, summed: bool, edges: Any) -> norch.Tensor:
        ctx.save_for_backward(input, edges)
        ctx.shape, ctx.padding_idx, ctx.summed = tuple(weight.shape), padding_idx, summed
        if summed:
            return norch.embedding_sum(input, weight, padding_idx, offsets=edges)
        return norch.embedding(input, weight, padding_idx)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        input, edges = ctx.saved_tensors
        (grad,), (rows, features) = grads, ctx.shape
        if edges is not None:  # what is in no bag gets the row of zeros behind them all
            grad = norch.cat([grad, grad.new_zeros((1, features))])[_bag_of_each(input.shape[0], edges)]
        elif ctx.summed:
            grad = grad.unsqueeze(-2).expand((*input.shape, features))
        places, values = input.reshape(-1), grad.reshape(-1, features)
        if ctx.padding_idx is not None:
            counted = places != ctx.padding_idx % rows
            places, values = places[counted], values[counted]
        found = norch.sparse_coo_tensor(places.unsqueeze(0), values, ctx.shape, check_invariants=False)
        return found, None, None, None, None


def _has_sparse_gradient(weight: norch.Tensor, input: norch.Tensor, sparse: bool) -> bool:
    """Whether one is wanted and goes to a leaf at once. Transforms of functions and recorded steps take dense ones."""
    if not sparse or not weight.requires_grad or not weight.is_leaf or not norch.is_grad_enabled():
        return False
    return (
        type(weight) in (norch.Tensor, norch.nn.Parameter)
        and type(input) is norch.Tensor
        and not norch.compiler.is_compiling()
    )


def embedding(
    input: norch.Tensor,
    weight: norch.Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> norch.Tensor:
    """The rows of `weight` that the integers `input` name: (*shape), (rows, features) -> (*shape, features).

    padding_idx: a row that gets no gradient. max_norm: rows looked up whose `norm_type`-norm is larger are scaled down
    to it, in place. scale_grad_by_freq: a row's gradient is divided by how often it is in `input`. sparse: the gradient
    of a weight that is a leaf is a sparse COO tensor of the rows named. Raises as `norch.embedding` does.
    """
    _check(weight, "embedding")
    if max_norm is not None:
        _renorm(input, weight, max_norm, norm_type)
    out = _rows(input, weight, padding_idx, sparse)
    return _by_frequency(out, input, weight) if scale_grad_by_freq else out


def _rows(input: norch.Tensor, weight: norch.Tensor, padding_idx: int | None, sparse: bool) -> norch.Tensor:
    if _has_sparse_gradient(weight, input, sparse):
        return _SparseGradient.apply(weight, input, padding_idx, False, None)
    return norch.embedding(input, weight, padding_idx)


def _check(weight: norch.Tensor, op: str) -> None:
    if weight.ndim != 2:
        raise norch.ShapeError(f"{op}(): weight must be (rows, features), got shape {tuple(weight.shape)}")


def _renorm(input: norch.Tensor, weight: norch.Tensor, max_norm: float, norm_type: float) -> None:
    with norch.no_grad():
        places = input.detach().reshape(-1).to(norch.int64)
        rows = norch.embedding(places, weight.detach())
        norms = norch.norm(rows, norm_type, 1, True)
        factors = norch.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
        weight.index_copy_(0, places, rows * factors)


def _by_frequency(out: norch.Tensor, input: norch.Tensor, weight: norch.Tensor) -> norch.Tensor:
    if out.requires_grad:
        places = input.detach().reshape(-1).to(norch.int64)
        counts = weight.new_zeros((weight.shape[0],)).index_add(0, places, weight.new_ones((places.numel(),)))
        share = (1 / counts[places]).reshape((*input.shape, 1))
        out.register_hook(lambda grad: grad * share)
    return out


def embedding_bag(
    input: norch.Tensor,
    weight: norch.Tensor,
    offsets: norch.Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: norch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> norch.Tensor:
    """For each bag of indices the `mode` ("sum", "mean" or "max") of the rows of `weight` that they name: (bags,
    features).

    input: (bags, n), or (n) with `offsets`, where each bag begins. include_last_offset: they have one number more,
    which should be n, and does not count.
    per_sample_weights: a factor for each index, for sums. max_norm, norm_type, scale_grad_by_freq: as of `embedding`.
    padding_idx: an index that does not count. An empty bag gives zeros. The maximum with `offsets` waits for the length
    of the longest bag. sparse: as of `embedding`. Raises ShapeError for shapes, and a
    padding_idx, that do not fit, DTypeError for weights of another dtype, ValueError for arguments that do not.
    """
    _check(weight, "embedding_bag")
    _check_bags(input, offsets, mode, per_sample_weights, scale_grad_by_freq)
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        raise norch.DTypeError(
            f"embedding_bag(): per_sample_weights are {per_sample_weights.dtype}, weight {weight.dtype}"
        )
    if padding_idx is not None:
        if not -weight.shape[0] <= padding_idx < weight.shape[0]:
            raise norch.ShapeError(f"embedding_bag(): padding_idx {padding_idx} is not a row of {weight.shape[0]}")
        padding_idx = padding_idx % weight.shape[0]
    if max_norm is not None:
        _renorm(input, weight, max_norm, norm_type)
    counted = None if padding_idx is None else input.detach() != padding_idx
    edges = None if offsets is None else _edges(input, offsets, include_last_offset)
    has_sparse_gradient = _has_sparse_gradient(weight, input, sparse)
    if mode != "max" and per_sample_weights is None and has_sparse_gradient and not scale_grad_by_freq:
        sums = _SparseGradient.apply(weight, input, padding_idx, True, edges)
    elif mode != "max" and not has_sparse_gradient and not scale_grad_by_freq and weight.is_floating_point():
        sums = norch.embedding_sum(input, weight, padding_idx, offsets=edges, per_sample_weights=per_sample_weights)
    else:
        rows = _rows(input, weight, padding_idx, sparse)
        if scale_grad_by_freq:
            rows = _by_frequency(rows, input, weight)
        if mode == "max":
            return _largest(*(_in_rows(rows, counted, edges) if edges is not None else (rows, counted)))
        if per_sample_weights is not None:
            rows = rows * per_sample_weights.unsqueeze(-1)
        if counted is not None:
            rows = norch.where(counted.unsqueeze(-1), rows, 0.0)
        sums = rows.sum(1) if edges is None else _added_up(rows, edges)
    return sums if mode == "sum" else sums / _sizes(input, counted, edges, sums.dtype)


def _check_bags(
    input: norch.Tensor,
    offsets: norch.Tensor | None,
    mode: str,
    per_sample_weights: norch.Tensor | None,
    scale_grad_by_freq: bool,
) -> None:
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"embedding_bag(): mode must be 'sum', 'mean' or 'max', got {mode!r}")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("embedding_bag(): scale_grad_by_freq is for the modes 'sum' and 'mean'")
    shape = tuple(input.shape)
    if len(shape) == 2 and offsets is not None:
        raise ValueError(f"embedding_bag(): input of shape {shape} has its bags in rows; offsets must be None")
    if len(shape) == 1 and (offsets is None or offsets.ndim != 1):
        raise ValueError(f"embedding_bag(): input of shape {shape} needs 1-D offsets, where its bags begin")
    if len(shape) not in (1, 2):
        raise norch.ShapeError(f"embedding_bag(): input must have 1 or 2 dims, got shape {shape}")
    if per_sample_weights is not None:
        if mode != "sum":
            raise ValueError(f"embedding_bag(): per_sample_weights are for mode 'sum', got {mode!r}")
        if tuple(per_sample_weights.shape) != shape:
            raise norch.ShapeError(
                f"embedding_bag(): per_sample_weights {tuple(per_sample_weights.shape)} are not of input's {shape}"
            )


def _edges(input: norch.Tensor, offsets: norch.Tensor, include_last_offset: bool) -> norch.Tensor:
    """Where each bag begins, and where the last one ends: with the input, whatever the last offset is."""
    begins = offsets.detach().to(norch.int64)
    begins = begins[:-1] if include_last_offset else begins
    return norch.cat([begins, begins.new_full((1,), input.shape[0])])


def _added_up(rows: norch.Tensor, edges: norch.Tensor) -> norch.Tensor:
    """The sum of each bag of rows; those in no bag go to one behind them all."""
    bags, places = edges.shape[0] - 1, _bag_of_each(rows.shape[0], edges)
    return rows.new_zeros((bags + 1, *rows.shape[1:])).index_add(0, places, rows)[:bags]


def _bag_of_each(count: int, edges: norch.Tensor) -> norch.Tensor:
    """Which bag each of `count` indices is in, counted from the end where it is before the first."""
    begun = edges.new_zeros((count + 1,)).index_add(0, edges, norch.ones_like(edges))
    return begun.cumsum(0)[:count] - 1


def _sizes(input: norch.Tensor, counted: norch.Tensor | None, edges: norch.Tensor | None, dtype: Any) -> Any:
    """How many indices count in each bag, at least 1: a number, or a column."""
    if edges is None:
        if counted is None:
            return max(input.shape[1], 1)
        return counted.to(dtype).sum(1, keepdim=True).clamp(min=1.0)
    sizes = edges[1:] - edges[:-1] if counted is None else _added_up(counted.to(dtype), edges)
    return sizes.to(dtype).clamp(min=1.0).unsqueeze(1)


def _in_rows(rows: norch.Tensor, counted: norch.Tensor | None, edges: norch.Tensor) -> tuple[norch.Tensor, Any]:
    """Bags laid one below the other as (bags, longest, features), and which of the places are taken."""
    sizes = edges[1:] - edges[:-1]
    longest = int(sizes.max().item()) if sizes.numel() else 0
    at = norch.arange(longest, device=rows.device)
    taken = at < sizes.unsqueeze(1)
    places = norch.where(taken, edges[:-1].unsqueeze(1) + at, 0)
    if counted is not None and longest:
        taken = taken & counted[places]
    return rows[places] if longest else rows.new_zeros((sizes.numel(), 0, rows.shape[1])), taken


def _largest(rows: norch.Tensor, counted: norch.Tensor | None) -> norch.Tensor:
    if not rows.shape[1]:
        return rows.sum(1)
    if counted is None:
        return rows.max(1)[0]
    largest = norch.where(counted.unsqueeze(-1), rows, -norch.inf).max(1)[0]
    return norch.where(counted.any(1, keepdim=True), largest, 0.0)
