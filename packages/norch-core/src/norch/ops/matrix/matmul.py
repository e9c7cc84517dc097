"""Matrix products and what is built on them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ...dispatch.call import run_mixed
from ...dispatch.codegen import call_path
from ...dispatch.plan import Inferred
from ...dtype import DType, bfloat16, bool_, float16, float32, int32, int64
from ...errors import DTypeError, ShapeError, drawn
from ...spec import Spec, as_int, broadcast_shapes, expand_strides
from ..creation import arange
from ..elementwise.arithmetic import where
from ..families import BinaryFunction, binary_signature, composite, of_method, primitive, taking_out
from ..registry import method, public
from ..shape.views import diagonal
from ..upcast import in_float32

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer_matmul(a: Spec, b: Spec) -> Inferred:
    if type(a) is not Spec or type(b) is not Spec:
        scalar: Any = a if type(a) is not Spec else b
        raise DTypeError(f"matmul(): expected a Tensor, got {scalar.__name__}; use * for scalars")
    if a.dtype is not b.dtype:
        raise DTypeError(f"matmul(): operands of dtypes {a.dtype} and {b.dtype}; convert one")
    if a.dtype is bool_:
        raise DTypeError("matmul(): cannot take bool; convert it first")
    if not a.ndim or not b.ndim:
        raise ShapeError(f"matmul(): 0-d operands, shapes {tuple(a.shape)} and {tuple(b.shape)}; use *")
    rows, columns = a.ndim == 1, b.ndim == 1
    a_shape, a_strides = ((1, *a.shape), (0, *a.strides)) if rows else (a.shape, a.strides)
    b_shape, b_strides = ((*b.shape, 1), (*b.strides, 0)) if columns else (b.shape, b.strides)
    if a_shape[-1] != b_shape[-2]:
        raise ShapeError(
            f"matmul(): shapes {tuple(a.shape)} and {tuple(b.shape)} do not match: {a_shape[-1]} columns, "
            f"{b_shape[-2]} rows" + drawn(("input", a.shape, (-1,)), ("other", b.shape, (-1 if columns else -2,)))
        )
    batch = broadcast_shapes(tuple(a_shape[:-2]), tuple(b_shape[:-2]), op="matmul")
    full = (*batch, a_shape[-2], b_shape[-1])
    shape = full[:-1] if columns else full
    if rows:
        shape = (*batch, *shape[len(batch) + 1 :])
    left = a.like((*batch, *a_shape[-2:]), expand_strides(tuple(a_shape), tuple(a_strides), (*batch, *a_shape[-2:])))
    right = b.like((*batch, *b_shape[-2:]), expand_strides(tuple(b_shape), tuple(b_strides), (*batch, *b_shape[-2:])))
    return Inferred((a.like(shape),), (left, right), {}, (a.like(full),))


def _by_columns(spec: Spec) -> bool:
    """Whether matrices lie in memory column by column, as those of a transpose do: their gradient then does too."""
    return spec.strides[-2] == 1 and spec.strides[-1] != 1


def _matmul_vjp_a(g: Tensor, b: Tensor, a_spec: Spec) -> Tensor:
    if b.spec.ndim == 1:
        return g.unsqueeze(-1) * b if a_spec.ndim > 1 else g * b
    if a_spec.ndim == 1:
        return (b @ g.unsqueeze(-1)).squeeze(-1)
    return (b @ g.mT).mT if _by_columns(a_spec) else g @ b.mT


def _matmul_vjp_b(g: Tensor, a: Tensor, b_spec: Spec) -> Tensor:
    if a.spec.ndim == 1:
        return g * a if b_spec.ndim == 1 else a.unsqueeze(-1) * g.unsqueeze(-2)
    if b_spec.ndim == 1:
        return (a.mT @ g.unsqueeze(-1)).squeeze(-1)
    if b_spec.ndim == 2 and a.spec.ndim > 2:
        # One product over all the batches instead of one for each, summed.
        rows = prod(a.spec.shape[:-1])
        a, g = a.reshape(rows, a.spec.shape[-1]), g.reshape(rows, g.spec.shape[-1])
    return (g.mT @ a).mT if _by_columns(b_spec) else a.mT @ g


_MATMUL = primitive("matmul", "a b", 2, _infer_matmul, (_matmul_vjp_a, _matmul_vjp_b))
matmul: BinaryFunction = call_path(_MATMUL, binary_signature)
_matmul_function: BinaryFunction = call_path(
    _MATMUL, binary_signature, takes_out=(), shown=taking_out(binary_signature)
)
matmul.__qualname__ = _matmul_function.__qualname__ = "matmul"
matmul.__module__ = __name__
matmul.__doc__ = """The matrix product, over broadcast batch dims, by NumPy's rules: (..., m, k) @ (..., k, n).

A 1-D operand is a row (left) or column (right) whose dim then disappears. Raises ShapeError where the inner sizes
differ, DTypeError where the dtypes do."""
_matmul_function.__doc__ = matmul.__doc__
matmul.op = _matmul_function.op = _MATMUL  # type: ignore[attr-defined]
public("__matmul__", entry=of_method(_matmul_function, matmul))(matmul)


@method("__rmatmul__")
def _rmatmul(self: Tensor, other: Any) -> Tensor:
    """`other @ self`, for an array on the left."""
    return run_mixed(_MATMUL, other, self)  # type: ignore[no-any-return]


def require_dims(op: str, *pairs: tuple[Any, int]) -> None:
    """Raises ShapeError unless each tensor has its number of dims."""
    for tensor, ndim in pairs:
        if tensor.spec.ndim != ndim:
            shapes = " and ".join(str(tuple(x.spec.shape)) for x, _ in pairs)
            raise ShapeError(f"{op}(): expected tensors of {' and '.join(str(n) for _, n in pairs)} dims, got {shapes}")


def _product(op: str, a: Tensor, a_ndim: int, b: Tensor, b_ndim: int) -> Tensor:
    """`matmul` of operands of so many dims, without broadcasting."""
    check_product(op, a, a_ndim, b, b_ndim)
    return matmul(a, b)


def check_product(op: str, a: Tensor, a_ndim: int, b: Tensor, b_ndim: int) -> None:
    """Raises ShapeError unless the operands have so many dims, equal inner sizes and, of 3 dims, equal batches.

    Tensors that stand for others may be of any shape: their class says what the product is.
    """
    if a.left_to is not None or b.left_to is not None:
        return
    require_dims(op, (a, a_ndim), (b, b_ndim))
    first, second = a.spec.shape, b.spec.shape
    if first[:-2] != second[:-2]:
        raise ShapeError(
            f"{op}(): batches of {tuple(first)} and {tuple(second)} differ in size"
            + drawn(("input", first, (0,)), ("mat2", second, (0,)))
        )
    if first[-1] != second[-2 if b_ndim > 1 else 0]:
        raise ShapeError(
            f"{op}(): shapes {tuple(first)} and {tuple(second)} do not match"
            + drawn(("input", first, (-1,)), ("mat2" if b_ndim > 1 else "vec", second, (-2 if b_ndim > 1 else 0,)))
        )


def factors_in(out_dtype: DType, op: str, *factors: Tensor) -> tuple[Tensor, ...]:
    """Factors in the dtype that a product is to have. Raises DTypeError unless that is theirs, or float32 for those of
    16 bits, whose products it holds exactly."""
    for factor in factors:
        if factor.dtype is not out_dtype and (out_dtype is not float32 or factor.dtype not in (float16, bfloat16)):
            raise DTypeError(
                f"{op}(): out_dtype must be float32 for factors of 16 bits, got {out_dtype}, {factor.dtype}"
            )
    return tuple([factor.to(out_dtype) for factor in factors])


@public()
def mm(input: Tensor, mat2: Tensor, out_dtype: DType | None = None) -> Tensor:
    """The product of two matrices: input (m, k) @ mat2 (k, n), without broadcasting. Raises as matmul does.

    out_dtype: float32, for a product of 16-bit floats that is not rounded to 16 bits. DTypeError for others.
    """
    if out_dtype is not None:
        input, mat2 = factors_in(out_dtype, "mm", input, mat2)
    return _product("mm", input, 2, mat2, 2)


@public()
def bmm(input: Tensor, mat2: Tensor, out_dtype: DType | None = None) -> Tensor:
    """The products of two batches of matrices: input (b, m, k) @ mat2 (b, k, n), without broadcasting. out_dtype: as of
    mm. Raises as mm does.
    """
    if out_dtype is not None:
        input, mat2 = factors_in(out_dtype, "bmm", input, mat2)
    return _product("bmm", input, 3, mat2, 3)


@public()
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """A matrix times a vector: (m, k) @ vec (k) -> (m). Raises as matmul does."""
    return _product("mv", input, 2, vec, 1)


@public()
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The inner product of two vectors, (k) and (k), a 0-d tensor. Raises as matmul does."""
    return _product("dot", input, 1, tensor, 1)


@public("ger")
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The outer product: input (n), vec2 (m) -> (n, m). Dtypes promote. Raises ShapeError unless both are vectors."""
    require_dims("outer", (input, 1), (vec2, 1))
    return input.unsqueeze(1) * vec2


@public(inplace=True)
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, out_dtype: DType | None = None, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), of shape (m, n).

    `input` broadcasts to it; with beta 0 it is not read. out_dtype: as of mm. Raises ShapeError for shapes that do not
    fit, DTypeError as mm does.
    """
    if out_dtype is not None:
        mat1, mat2 = factors_in(out_dtype, "addmm", mat1, mat2)
    return add_product("addmm", input, mm, mat1, mat2, beta, alpha)


def add_product(op: str, input: Tensor, multiply: Any, a: Tensor, b: Tensor, beta: float, alpha: float) -> Tensor:
    """beta * input + alpha * multiply(a, b), in its shape; integers cut the numbers off, bools take them as bools.

    Raises ShapeError where input does not broadcast to it.
    """
    return (_add_product if alpha == 1 else _add_scaled_product)(a, b, input, op, multiply, beta, alpha)


def _add_product(a: Tensor, b: Tensor, input: Tensor, op: str, multiply: Any, beta: float, alpha: float) -> Tensor:
    product: Tensor = multiply(a, b)
    kind = (bool, int, float)[max(product.spec.dtype.category, input.spec.dtype.category)]
    if kind is not float:
        beta, alpha = kind(beta), kind(alpha)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    out = product + (input if beta == 1 else input * beta)
    if out.spec.shape != product.spec.shape:
        raise ShapeError(f"{op}(): input {tuple(input.spec.shape)} does not broadcast to {tuple(product.spec.shape)}")
    return out


_add_scaled_product = in_float32(_add_product)  # a 16-bit product, or its gradient, may overflow before it is scaled


@public(inplace=True)
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of the last two dims; zeros above the given diagonal. Raises ShapeError below 2 dims."""
    return _triangle(input, _diagonal_within(input, diagonal, "tril"), True)


@public(inplace=True)
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of the last two dims; zeros below the given diagonal. Raises ShapeError below 2 dims."""
    return _triangle(input, _diagonal_within(input, diagonal, "triu"), False)


def _diagonal_within(input: Tensor, diagonal: int, op: str) -> int:
    """The number of a diagonal, or the next one beyond a corner. Raises ShapeError below 2 dims."""
    if input.spec.ndim < 2:
        raise ShapeError(f"{op}(): needs at least 2 dims, got shape {tuple(input.spec.shape)}")
    m, n = input.spec.shape[-2:]
    at = diagonal if type(diagonal) is int else as_int(diagonal, op, "diagonal")
    return max(-m, min(at, n))


def _triangle_rule(g: Tensor, diagonal: int, lower: bool) -> Tensor:
    return _triangle(g, diagonal, lower)


@composite(lambda input, diagonal, lower: input.like(), _triangle_rule, name="triangle")
def _triangle(input: Tensor, diagonal: int, lower: bool) -> Tensor:
    m, n = input.spec.shape[-2:]
    dtype = int32 if m + n < 1 << 30 else int64  # half the bytes to compare
    row = arange(m, dtype=dtype, device=input.device).unsqueeze(1) + diagonal
    column = arange(n, dtype=dtype, device=input.device)
    return where(column <= row if lower else column >= row, input, False if input.spec.dtype is bool_ else 0)


@public()
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal of a square matrix; of a matrix, its diagonal, a copy. ShapeError for other dims."""
    if input.spec.ndim == 2:
        return _diagonal(input, diagonal).clone()
    require_dims("diag", (input, 1))
    n = input.spec.shape[0] + abs(diagonal)
    out = input.new_zeros(n, n)
    _diagonal(out, diagonal).copy_(input)
    return out


_diagonal = diagonal


@public()
def trace(input: Tensor) -> Tensor:
    """The sum of the main diagonal of a matrix, 0-d; int64 for integers. Raises ShapeError for other dims."""
    require_dims("trace", (input, 2))
    return diagonal(input).sum()
