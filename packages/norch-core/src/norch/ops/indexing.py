"""gather, scatter and their relatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..dispatch.op import Op
from ..dispatch.plan import Inferred
from ..dtype import INTEGER, bool_, int64
from ..errors import DTypeError, IndexError, ShapeError
from ..spec import Shape, Spec, broadcast_shapes, expand_strides, wrap_dim
from .checks import require_integers
from .copying import clone
from .creation import fill_spec
from .elementwise.arithmetic import where
from .families import composite, primitive
from .registry import public

if TYPE_CHECKING:
    from ..tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])


def _check_index(op: str, x: Spec, dim: Any, index: Spec) -> int:
    require_integers(op, "index", index)
    if x.ndim != index.ndim:
        raise ShapeError(f"{op}(): input {tuple(x.shape)} and index {tuple(index.shape)} differ in number of dims")
    at = wrap_dim(dim, x.ndim, op)
    for d, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)):
        if d != at and m > n:
            raise ShapeError(f"{op}(): index {tuple(index.shape)} is larger than input {tuple(x.shape)} in dim {d}")
    return at


def _require_elements(op: str, x: Spec, dim: int, index: Spec) -> None:
    if not x.shape[dim] and index.numel:
        raise IndexError(f"{op}(): index {tuple(index.shape)} into dim {dim} of shape {tuple(x.shape)}, which is empty")


def _infer_gather(x: Spec, dim: Any, index: Spec) -> Inferred:
    at = _check_index("gather", x, dim, index)
    _require_elements("gather", x, at, index)
    return Inferred((index.like(dtype=x.dtype),), (x, (int64, index.shape)), {"dim": at})


def _gather_vjp(g: Tensor, x_spec: Spec, dim: int, index: Tensor) -> Tensor:
    return gather_grad(g, index, dim, tuple(x_spec.shape))


_GATHER = primitive("gather", "x dim index", (0, 2), _infer_gather, (_gather_vjp, None))


def _infer_scatter(index: Spec, src: Any, dim: int) -> Inferred:
    dtype = src.dtype if type(src) is Spec else int64
    return Inferred((index.like(dtype=dtype),), (index, src), {"dim": dim})


_SCATTER = primitive("scatter", "index src dim", 2, _infer_scatter)
_SCATTER_ADD = primitive("scatter_add", "index src dim", 2, _infer_scatter)


@public()
def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on. The result has index's shape and input's dtype.

    A negative index counts from the end. Raises IndexError for one out of range, ShapeError where index has another
    number of dims than input, or is larger in another dim, DTypeError unless it holds integers.
    """
    ndim, index_ndim = input.spec.ndim, index.spec.ndim
    if ndim and ndim == index_ndim:
        return _GATHER.call(input, dim, index)
    shape = tuple(index.spec.shape)
    if not index.spec.numel:
        return input.reshape(-1).narrow(0, 0, 0).reshape(shape)
    if ndim < 2 and index_ndim < 2:
        return _GATHER.call(input.reshape(-1), dim, index.reshape(-1)).reshape(shape)
    return _GATHER.call(input, dim, index)


def _along(index: Spec, shape: Shape, dim: int) -> Spec:
    """A vector of indices, or a contiguous tensor of them, as a gather or scatter along `dim` of `shape` takes it."""
    strides = [0] * len(shape)
    strides[dim] = index.strides[0] if index.ndim == 1 else 1
    return index.like((*shape[:dim], index.numel, *shape[dim + 1 :]), tuple(strides))


def _infer_index(x: Spec, index: Spec, dim: int) -> Inferred:
    shape = tuple(x.shape)
    _require_elements("index", x, dim, index)
    places = _along(index, shape, dim)
    out = x.like((*shape[:dim], *index.shape, *shape[dim + 1 :]))
    return Inferred((out,), (x, places), {"dim": dim}, (x.like(tuple(places.shape)),))


def _index_vjp(g: Tensor, x_spec: Spec, index: Tensor, dim: int) -> Tensor:
    count = index.spec.numel
    rows = g.reshape(*x_spec.shape[:dim], count, *x_spec.shape[dim + 1 :])
    places = index.reshape([count if d == dim else 1 for d in range(x_spec.ndim)]).expand(tuple(rows.shape))
    return gather_grad(rows, places, dim, tuple(x_spec.shape))


INDEX = Op("index", ("x", "index", "dim"), 2, _infer_index, (_index_vjp, None), kernel="gather")
"""The elements along a dim that int64 indices choose; of several dims these must be contiguous."""


def _infer_index_put(index: Spec, src: Spec, dim: int, shape: Shape) -> Inferred:
    places = _along(index, shape, dim)
    values = src.like(tuple(places.shape), expand_strides(src.shape, src.strides, tuple(places.shape)))
    return Inferred((src.like(tuple(places.shape)),), (places, values), {"dim": dim})


_PARAMS = ("index", "src", "dim", "shape")
INDEX_PUT = Op("index_put", _PARAMS, 2, _infer_index_put, kernel="scatter")
INDEX_ADD = Op("index_add", _PARAMS, 2, _infer_index_put, kernel="scatter_add")
"""Into a tensor of `shape`, at a vector of int64 indices along a dim, values that broadcast to these elements."""


def scatter_into(out: Tensor, dim: int, index: Tensor, src: Tensor, add: bool = False) -> None:
    """Writes `src` into the memory of `out` at `index` along `dim`, unrecorded. Shapes have been checked."""
    if index.spec.dtype is not int64:
        index = index.to(int64)
    if src.spec.dtype is not out.spec.dtype:
        src = src.to(out.spec.dtype)
    if index.spec.ndim > 1 or src.spec.shape != index.spec.shape:
        for d, n in enumerate(index.spec.shape):
            if src.spec.shape[d] != n:
                src = src.narrow(d, 0, n)
            if d != dim and out.spec.shape[d] != n:
                out = out.narrow(d, 0, n)
    (_SCATTER_ADD if add else _SCATTER).into(out, index, src if src.node is None else src.detach(), dim)


def _into_zeros(grad: Tensor, index: Tensor, dim: int, shape: Shape, add: bool) -> Tensor:
    out = fill_spec(grad.spec.like(shape), 0)
    if out.spec.numel:
        scatter_into(out, wrap_dim(dim, len(shape), "gather"), index, grad, add)
    return out


def _of_gather(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return composite(
        lambda grad, index, dim, shape: grad.like(shape), {"grad": lambda g, index, dim: gather(g, dim, index)}
    )(function)


@_of_gather
def gather_grad(grad: Tensor, index: Tensor, dim: int, shape: Shape) -> Tensor:
    """`grad` added up where `index` gathered it from, in zeros of `shape`."""
    return _into_zeros(grad, index, dim, shape, True)


@_of_gather
def chosen_grad(grad: Tensor, index: Tensor, dim: int, shape: Shape) -> Tensor:
    """The same where no element was gathered twice."""
    return _into_zeros(grad, index, dim, shape, False)


def infer_scattered(input: Spec, dim: Any, index: Spec, src: Spec) -> Spec:
    at = _check_index("scatter", input, dim, index)
    if src.ndim != index.ndim or any(m > n for m, n in zip(index.shape, src.shape, strict=True)):
        raise ShapeError(f"scatter(): index {tuple(index.shape)} is larger than src {tuple(src.shape)}")
    if src.dtype is not input.dtype:
        raise DTypeError(f"scatter(): input is {input.dtype} and src {src.dtype}; convert one")
    if input.ndim and not input.shape[at] and index.numel:
        raise IndexError(
            f"scatter(): index {tuple(index.shape)} into dim {dim} of shape {tuple(input.shape)}, an empty one"
        )
    return input.like()


def _scatter_copy(input: Tensor, dim: int, index: Tensor, src: Tensor, add: bool) -> Tensor:
    out = clone(input if input.node is None else input.detach())
    scatter_into(out, wrap_dim(dim, input.spec.ndim, "scatter"), index, src, add)
    return out


def _src_gradient(g: Tensor, dim: int, index: Tensor, src_spec: Spec) -> Tensor:
    found = gather(g, dim, index)
    if found.spec.shape == src_spec.shape:
        return found
    from .shape.padding import pad_end

    return pad_end(found, tuple(src_spec.shape))


@composite(
    infer_scattered,
    {
        "input": lambda g, dim, index: g.scatter(dim, index, g.new_zeros(tuple(index.spec.shape))),
        "src": _src_gradient,
    },
    name="functional_scatter",
)
def _scatter(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return _scatter_copy(input, dim, index, src, False)


@composite(infer_scattered, {"input": lambda g: g, "src": _src_gradient}, name="functional_scatter_add")
def _scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return _scatter_copy(input, dim, index, src, True)


def names_nothing(input: Tensor, index: Tensor) -> bool:
    """Whether an index of no elements, which may have any dims and dtype, leaves `input` as it is."""
    spec = index.spec
    return not spec.numel and (spec.ndim != input.spec.ndim or spec.dtype.category != INTEGER)


@public(inplace=True)
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """A copy of input with out[index[i][j]][j] = src[i][j] for dim 0, and so on; `src` may be a number, or `value`, by
    name.

    Where an index comes twice, one of its values is kept; with `reduce` "add" or "multiply" all of them are added to
    what was there, or multiplied with it. Raises IndexError for an index out of range, ShapeError for shapes that do
    not fit, DTypeError unless src has input's dtype and index integers, ValueError for another `reduce`. An index of no
    elements fits any input.
    """
    source = value if src is None else src
    if names_nothing(input, index):
        return clone(input)
    if not hasattr(source, "spec"):
        source = input.new_full(tuple(index.spec.shape), source)
    if reduce is not None:
        from .scatter_copies import scatter_reduce

        reductions = {"add": "sum", "multiply": "prod"}
        if reduce not in reductions:
            raise ValueError(f"scatter(): reduce must be 'add' or 'multiply', got {reduce!r}; see scatter_reduce")
        return scatter_reduce(input, dim, index, source, reductions[reduce])
    return _scatter(input, dim, index, source)


@public(inplace=True)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of input with out[index[i][j]][j] += src[i][j] for dim 0, and so on. Raises as scatter does."""
    if names_nothing(input, index):
        return clone(input)
    return _scatter_add(input, dim, index, src)


def expand_index(index: Tensor, like: tuple[int, ...], dim: int, op: str) -> Tensor:
    """A 1-D index of `dim` expanded to shape `like` in the other dims. Raises ShapeError for more dims."""
    if index.spec.ndim > 1:
        raise ShapeError(f"{op}(): index must have 1 dim, got shape {tuple(index.spec.shape)}")
    require_integers(op, "index", index.spec)
    flat = index if index.spec.ndim else index.reshape(1)
    if len(like) == 1:
        return flat
    shape = [1] * len(like)
    shape[dim] = flat.spec.numel
    return flat.reshape(shape).expand(*like[:dim], flat.spec.numel, *like[dim + 1 :])


@public()
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of input along `dim` that the 1-D `index` names, in its order. Raises as gather does."""
    if input.left_to is not None or index.left_to is not None:
        return INDEX.call(input, index, dim)
    if not input.spec.ndim:
        return index_select(input.reshape(1), dim, index).reshape(())
    at = wrap_dim(dim, input.spec.ndim, "index_select")
    _require_elements("index_select", input.spec, at, index.spec)  # gather sees no index where another dim is empty
    if index.spec.ndim == 1 and index.spec.dtype is int64 and type(input.spec) is type(index.spec) is Spec:
        return INDEX.call(input, index, at)
    return gather(input, at, expand_index(index, tuple(input.spec.shape), at, "index_select"))


def takes_0d(function: F) -> F:
    """Lets `function(input, dim, index, ...)` take 0-d tensors, input and what follows, for vectors of one element."""

    def vector(value: Any) -> Any:
        return value.reshape(-1) if hasattr(value, "spec") and value.spec.numel == 1 else value

    @wraps(function)
    def call(input: Tensor, dim: int, index: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if input.spec.ndim:
            return function(input, dim, index, *args, **kwargs)  # type: ignore[no-any-return]
        named = {key: vector(value) for key, value in kwargs.items()}
        out: Tensor = function(input.reshape(1), dim, index, *map(vector, args), **named)
        return out.reshape(())

    return cast("F", call)


def require_slices(op: str, input: Spec, dim: int, index: Spec, source: Spec) -> None:
    """That `source` has a slice of the shape of input's for each index."""
    wanted = (*input.shape[:dim], index.numel, *input.shape[dim + 1 :])
    if source.shape != wanted:
        raise ShapeError(
            f"{op}(): source must have shape {tuple(wanted)}, a slice along dim {dim} of input {tuple(input.shape)} "
            f"for each of {index.numel} indices, got {tuple(source.shape)}"
        )


@public(inplace=True)
@takes_0d
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """A copy of input, slice i of `source` along `dim` times `alpha` added at index[i].

    Raises ShapeError unless source has a slice of input's shape for each index, and as scatter does.
    """
    at = wrap_dim(dim, input.spec.ndim, "index_add")
    require_slices("index_add", input.spec, at, index.spec, source.spec)
    scaled = source if alpha == 1 else source * alpha
    return scatter_add(input, at, expand_index(index, tuple(source.spec.shape), at, "index_add"), scaled)


@public(inplace=True)
@takes_0d
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of input whose slices at `index` along `dim` are those of `source`. Raises as `index_add` does."""
    at = wrap_dim(dim, input.spec.ndim, "index_copy")
    source = source if source.spec.ndim else source.reshape(1)
    require_slices("index_copy", input.spec, at, index.spec, source.spec)
    return scatter(input, at, expand_index(index, tuple(source.spec.shape), at, "index_copy"), source)


@public(inplace=True)
@takes_0d
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of input whose slices at `index` along `dim` hold `value`, a number or 0-d. Raises as scatter does."""
    at = wrap_dim(dim, input.spec.ndim, "index_fill")
    shape = tuple(input.spec.shape)
    if not hasattr(value, "spec"):
        return scatter(input, at, expand_index(index, shape, at, "index_fill"), value)
    if value.spec.numel != 1:
        raise ShapeError(f"index_fill(): value must be a number or 0-d, got shape {tuple(value.spec.shape)}")
    # By a mask, so that an index that comes twice counts once in the gradient.
    mask = index_fill(fill_spec(input.spec.like((shape[at],), dtype=bool_), False), 0, index, True)
    return where(mask.reshape([-1 if d == at else 1 for d in range(len(shape))]), value.to(input.dtype), input)


@public()
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements of input, in row-major order, that `index` names; in index's shape. Raises as gather does."""
    return gather(input.reshape(-1), 0, index.reshape(-1)).reshape(tuple(index.spec.shape))


@public()
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather`, with input and indices broadcast in the other dims; without `dim` both are flattened.

    Raises ShapeError where they have not as many dims, and as gather does.
    """
    if dim is None:
        return take(input, indices.reshape(-1))
    at = wrap_dim(dim, input.spec.ndim, "take_along_dim")
    if input.spec.ndim != indices.spec.ndim:
        raise ShapeError(
            f"take_along_dim(): indices must have as many dims as input, got shapes {tuple(input.spec.shape)} and "
            f"{tuple(indices.spec.shape)}"
        )

    def without(x: Tensor) -> tuple[int, ...]:
        return tuple(1 if d == at else n for d, n in enumerate(x.spec.shape))

    shape = list(broadcast_shapes(without(input), without(indices), op="take_along_dim"))
    shape[at] = input.spec.shape[at]
    source = input.expand(shape)
    shape[at] = indices.spec.shape[at]
    return gather(source, at, indices.expand(shape))
