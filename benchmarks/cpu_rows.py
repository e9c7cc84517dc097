"""The rows of benchmarks/cpu.py that are one op each. Imported once the environment says how many threads to use."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from timing import Call

import norch

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = F = None  # type: ignore[assignment]

LIBRARIES = ("norch", "torch", "numpy") if torch is not None else ("norch", "numpy")
M = 1 << 20


@dataclass(frozen=True)
class Row:
    """Work that the libraries do, and the most that norch may take of PyTorch's time.

    prepare: a call of each library, on the same values. check: what is wrong with these, which must not be timed then.
    moved: bytes that the work cannot do without reading or writing; flops: its multiplications and additions.
    calls: how many are timed together, where a call is too short to be timed alone. precision: of float32 products, in
    norch and in PyTorch. tile_products: how many products of bfloat16 make one, where the processor has tile registers.
    """

    name: str
    group: str
    at_most: float
    prepare: Callable[[], dict[str, Call]]
    check: Callable[[Mapping[str, Call]], str | None]
    moved: float = 0
    flops: float = 0
    calls: int | None = None
    precision: tuple[str, str] = ("highest", "highest")
    tile_products: int = 0


def set_precision(ours: str, theirs: str) -> None:
    """Of float32 products, in norch and in PyTorch."""
    norch.set_float32_matmul_precision(ours)
    if torch is not None:
        torch.set_float32_matmul_precision(theirs)


def array_of(result: Any) -> np.ndarray[Any, Any]:
    """A result of any of the libraries; 16-bit floats as float32."""
    if isinstance(result, np.ndarray | np.generic):
        return result  # type: ignore[return-value]
    result = result.detach()
    return (result.float() if result.is_floating_point() and result.element_size() == 2 else result).numpy()


def same_results(calls: Mapping[str, Call], rtol: float = 1e-5, atol: float = 2e-6) -> str | None:
    """Says where norch's result is not that of the others; `atol` counts in the largest element."""
    ours = array_of(calls["norch"]())
    for library, call in calls.items():
        if library == "norch":
            continue
        theirs = array_of(call())
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"norch gives {ours.dtype} {ours.shape}, {library} {theirs.dtype} {theirs.shape}"
        scale = float(np.abs(theirs).max())
        if not np.allclose(ours, theirs, rtol, atol * scale):
            return f"norch and {library} differ by up to {np.abs(ours - theirs).max():.1e}, the largest is {scale:.1e}"
    return None


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape, np.float32)


def _positive(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return rng.random(shape, np.float32)  # a sum of these loses nothing by cancellation


def _operand(library: str, array: np.ndarray[Any, Any], grad: bool, dtype: str) -> Any:
    """A copy of `array` in memory that the library has allocated itself."""
    if library == "numpy":
        return array.copy()
    tensor = norch.tensor(array) if library == "norch" else torch.from_numpy(array).clone()
    tensor = tensor.to(getattr(norch if library == "norch" else torch, dtype))
    return tensor.requires_grad_() if grad else tensor


def op_row(
    name: str,
    group: str,
    at_most: float,
    shapes: Sequence[tuple[int, ...]],
    work: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    draw: Callable[..., Any] = _normal,
    grad: bool = False,
    dtype: str = "float32",
    **about: Any,
) -> Row:
    """A row of one op: `work` on operands of these shapes, the same in all libraries or by library."""
    exact = dtype == "float32" and about.get("precision", Row.precision)[0] == "highest"
    check = same_results if exact else functools.partial(same_results, rtol=2**-6, atol=2**-7)
    by_library = work if isinstance(work, Mapping) else dict.fromkeys(LIBRARIES, work)

    def prepare() -> dict[str, Call]:
        rng = np.random.default_rng(0)
        arrays = [draw(rng, shape) for shape in shapes]
        calls: dict[str, Call] = {}
        for library in LIBRARIES:
            if library in by_library and not (library == "numpy" and (grad or dtype != "float32")):
                operands = [_operand(library, array, grad and not at, dtype) for at, array in enumerate(arrays)]
                calls[library] = functools.partial(by_library[library], *operands)
        return calls

    return Row(name, group, at_most, prepare, check, **about)


def _small() -> list[Row]:
    rows = []
    for grad in (False, True):
        for name in ("add", "mul", "matmul"):
            title = f"4x4 {name}" + (", recorded" if grad else "")
            rows.append(op_row(title, "overhead", 0.55, [(4, 4)] * 2, getattr(operator, name), grad=grad, calls=2000))
    return rows


def _gelu_tanh(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.float32(0.5) * x * (1 + np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x)))


def _activations() -> list[Row]:
    def row(name: str, at_most: float, **work: Callable[..., Any]) -> Row:
        return op_row(f"{name}, 1M", "elementwise", at_most, [(M,)], work, moved=8 * M)

    return [
        row("exp", 0.9, norch=norch.exp, torch=lambda x: torch.exp(x), numpy=np.exp),
        row("tanh", 0.9, norch=norch.tanh, torch=lambda x: torch.tanh(x), numpy=np.tanh),
        row(
            "sigmoid",
            0.9,
            norch=norch.sigmoid,
            torch=lambda x: torch.sigmoid(x),
            numpy=lambda x: 1 / (1 + np.exp(-x)),
        ),
        row(
            "gelu, tanh",
            0.9,
            norch=lambda x: norch.gelu(x, approximate="tanh"),
            torch=lambda x: F.gelu(x, approximate="tanh"),
            numpy=_gelu_tanh,
        ),
        row("gelu, erf", 0.9, norch=norch.gelu, torch=lambda x: F.gelu(x)),
    ]


def _transposed_copy() -> dict[str, Callable[..., Any]]:
    return {
        "norch": lambda b: b.T.contiguous(),
        "torch": lambda b: b.T.contiguous(),
        "numpy": lambda b: np.ascontiguousarray(b.T),
    }


def _memory() -> list[Row]:
    big = (16384, 1024)
    return [
        op_row("add, 1M", "elementwise", 0.9, [(M,)] * 2, operator.add, moved=12 * M),
        op_row("sum of all, 1M", "rows", 0.9, [(M,)], lambda a: a.sum(), draw=_positive, moved=4 * M),
        op_row("add, 16M", "elementwise", 0.5, [big] * 2, operator.add, moved=12 * 16 * M),
        op_row("mul, 16M", "elementwise", 0.5, [big] * 2, operator.mul, moved=12 * 16 * M),
        op_row("add of a row, 16M", "elementwise", 0.6, [big, (1024,)], operator.add, moved=8 * 16 * M),
        op_row("a + b.T, 1024x1024", "layout", 0.25, [(1024, 1024)] * 2, lambda a, b: a + b.T, moved=12 * M),
        op_row("b.T copied, 2048x2048", "layout", 0.5, [(2048, 2048)], _transposed_copy(), moved=8 * 4 * M),
        op_row(
            "sum over axis 0, 4096x1000",
            "rows",
            0.6,
            [(4096, 1000)],
            lambda a: a.sum(0),
            draw=_positive,
            moved=4 * 4096 * 1000,
        ),
        op_row("sum of all, 16M", "rows", 1.0, [big], lambda a: a.sum(), draw=_positive, moved=4 * 16 * M),
    ]


def _numpy_softmax(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _numpy_layer_norm(x: Any, weight: Any, bias: Any) -> np.ndarray[Any, Any]:
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(1, keepdims=True) + np.float32(1e-5)) * weight + bias


def _rows() -> list[Row]:
    shape, moved = (4096, 1000), 8 * 4096 * 1000
    softmax = {
        "norch": lambda x: norch.softmax(x, 1),
        "torch": lambda x: torch.softmax(x, 1),
        "numpy": _numpy_softmax,
    }
    layer_norm = {
        "norch": lambda x, w, b: norch.layer_norm(x, (1000,), w, b),
        "torch": lambda x, w, b: F.layer_norm(x, (1000,), w, b),
        "numpy": _numpy_layer_norm,
    }
    return [
        op_row("softmax, 4096x1000", "rows", 0.6, [shape], softmax, moved=moved),
        op_row("layer_norm, 4096x1000", "rows", 0.8, [shape, (1000,), (1000,)], layer_norm, moved=moved),
    ]


def _matmuls() -> list[Row]:
    def row(at_most: float, n: int, k: int, m: int) -> Row:
        title = f"matmul, {n}" if n == k == m else f"matmul, {n}x{k}x{m}"
        return op_row(title, "matmul", at_most, [(n, k), (k, m)], operator.matmul, flops=2 * n * k * m)

    vector = op_row(
        "1x1024 @ 1024x1024", "matmul", 0.7, [(1, 1024), (1024, 1024)], operator.matmul, moved=4 * (M + 2048)
    )
    small = [row(0.8, n, n, n) for n in (16, 32)]
    large = [row(1.0, n, n, n) for n in (64, 128, 256, 512, 1024)]
    return [
        *small,
        vector,
        *large,
        row(1.03, 64, 784, 512),
        row(1.03, 128, 3072, 768),
        *_lower_precision(),
        *_decoding(),
    ]


def _lower_precision() -> list[Row]:
    def row(at_most: float, n: int, **about: Any) -> Row:
        precision = about.get("precision")
        title = f"matmul, {n}, " + (f'"{precision[0]}"' if precision else about["dtype"])
        return op_row(title, "matmul", at_most, [(n, n)] * 2, operator.matmul, flops=2 * n**3, **about)

    return [
        *(row(0.8, n, dtype="bfloat16", tile_products=1) for n in (512, 1024, 2048)),
        row(0.8, 1024, dtype="float16", tile_products=1),
        *(row(0.8, n, precision=("high", "high"), tile_products=3) for n in (512, 1024)),
    ]


def _decoding() -> list[Row]:
    """A layer of a small language model, for one and eight tokens."""
    shape = (1536, 576)
    linear = {"norch": norch.linear, "torch": lambda x, w: F.linear(x, w)}

    def row(at_most: float, tokens: int, dtype: str) -> Row:
        moved = (2 if dtype != "float32" else 4) * shape[0] * shape[1]
        title = f"linear, {tokens}x576 to 1536, {dtype}"
        return op_row(title, "matmul", at_most, [(tokens, 576), shape], linear, dtype=dtype, moved=moved)

    return [row(1.0, tokens, dtype) for tokens in (1, 8) for dtype in ("float32", "bfloat16", "float16")]


SMALL = _small()
OPS = [*_activations(), *_memory(), *_rows(), *_matmuls()]
