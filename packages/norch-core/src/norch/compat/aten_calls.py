"""What PyTorch's ops by their own names are in norch (`find`), and norch's ops by PyTorch's names (`named`)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from ..autograd import enable_grad, grad, is_grad_enabled
from ..dispatch.op import Op
from ..spec import Spec
from ..tensor import Tensor
from .aten import Overload, Packet, aten

# --- What an op of a name computes ----------------------------------------------------------------------------------


def _to_copy(
    self: Tensor, *, dtype: Any = None, device: Any = None, layout: Any = None, memory_format: Any = None, **more: Any
) -> Tensor:
    moved = self.to(device or self.device, dtype or self.dtype)
    return self.clone(memory_format=memory_format) if moved is self else moved


def _slice(self: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    at = dim % self.dim()
    return self[(slice(None),) * at + (slice(start, end, step),)]


def _index(self: Tensor, indices: Any) -> Tensor:
    return self[tuple([slice(None) if index is None else index for index in indices])]


def _index_put_(self: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    if accumulate:
        return self.index_put_(tuple(indices), values, accumulate=True)
    self[tuple([slice(None) if index is None else index for index in indices])] = values
    return self


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    functions = import_module("norch.nn.functional")
    name = f"conv{'_transpose' * transposed}{weight.dim() - 2}d"
    more = {"output_padding": output_padding} if transposed else {}
    found: Tensor = getattr(functions, name)(
        input, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups, **more
    )
    return found


def _convolution_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Any, *more: Any
) -> tuple[Tensor | None, ...]:
    """The gradients by input, weight and bias, of these the ones that the last argument asks for."""
    *options, wanted = more
    twice = is_grad_enabled() and any(x.requires_grad for x in (grad_output, input, weight))
    by = [x.view_as(x) if x.requires_grad and twice else x.detach().requires_grad_() for x in (input, weight)]
    with enable_grad():
        out = _convolution(by[0], by[1], None, *options)
    chosen = [x for x, is_wanted in zip(by, wanted, strict=False) if is_wanted]
    found = iter(grad(out, chosen, grad_output, create_graph=twice))
    by_bias = grad_output.sum([d for d in range(grad_output.dim()) if d != 1]) if wanted[2] else None
    return *[next(found) if is_wanted else None for is_wanted in wanted[:2]], by_bias


_CALLS: dict[str, Callable[..., Any]] = {
    "_to_copy": _to_copy,
    "_pin_memory": lambda self, device=None: self.pin_memory(),
    "alias": lambda self: self.view(self.shape),
    "lift_fresh": lambda self: self,
    "slice": _slice,
    "select": lambda self, dim, index: self.select(dim, index),
    "index": _index,
    "index_put": lambda self, indices, values, accumulate=False: _index_put_(self.clone(), indices, values, accumulate),
    "index_put_": _index_put_,
    "view": lambda self, size: self.view(size),
    "_unsafe_view": lambda self, size: self.view(size),
    "_softmax": lambda self, dim, half_to_float=False: self.softmax(dim),
    "_log_softmax": lambda self, dim, half_to_float=False: self.log_softmax(dim),
    "_local_scalar_dense": lambda self: self.item(),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "rsub": lambda self, other, alpha=1: other - self * alpha,
}


@cache
def find(name: str) -> Callable[..., Any]:
    """norch's function for PyTorch's op of a name. Raises AttributeError where there is none."""
    known = _CALLS.get(name)
    if known is not None:
        return known
    root = import_module("norch")
    if not name.endswith("_") and not name.startswith("_") and hasattr(root, name):
        return getattr(root, name)  # type: ignore[no-any-return]
    if hasattr(Tensor, name):
        return lambda self, *args, **kwargs: getattr(self, name)(*args, **kwargs)
    functions: Any = sys.modules.get("norch.nn.functional")
    return getattr(functions if hasattr(functions, name) else root, name)  # type: ignore[no-any-return]


# --- What an op is called there -------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A call of one of PyTorch's ops."""

    overload: Overload
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = {}


Naming = Callable[..., Call | None]
_NAMES: dict[str, Naming] = {}


def _named(*names: str) -> Callable[[Naming], Naming]:
    def register(function: Naming) -> Naming:
        _NAMES.update(dict.fromkeys(names, function))
        return function

    return register


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


@_named("add", "mul")
def _symmetric(name: str, a: Any, b: Any) -> Call:
    return Call(getattr(aten, name).Tensor, (a, b) if _is_tensor(a) else (b, a))


@_named("sub")
def _sub(name: str, a: Any, b: Any) -> Call:
    return Call(aten.sub.Tensor, (a, b)) if _is_tensor(a) else Call(aten.rsub.Scalar, (b, a))


@_named("div")
def _div(name: str, a: Any, b: Any) -> Call:
    if not _is_tensor(a) and a == 1:
        return Call(aten.reciprocal.default, (b,))
    return Call(aten.div.Tensor, (a, b))


@_named("axpy")
def _axpy(name: str, a: Any, b: Any, alpha: Any) -> Call:
    return Call(aten.add.Tensor, (a, b), {"alpha": alpha})


@_named("pow")
def _pow(name: str, a: Any, b: Any) -> Call:
    if _is_tensor(a):
        return Call(aten.pow.Tensor_Tensor if _is_tensor(b) else aten.pow.Tensor_Scalar, (a, b))
    return Call(aten.pow.Scalar, (a, b))


_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@_named(*_COMPARISONS)
def _compared(name: str, a: Any, b: Any) -> Call:
    if not _is_tensor(a):
        name, a, b = _COMPARISONS[name], b, a
    packet = getattr(aten, name)
    return Call(packet.Tensor if _is_tensor(b) else packet.Scalar, (a, b))


@_named("remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor")
def _binary(name: str, a: Any, b: Any) -> Call:
    packet = getattr(aten, name)
    if not _is_tensor(a):
        return Call(packet.Scalar_Tensor, (a, b))
    return Call(packet.Tensor if _is_tensor(b) else packet.Scalar, (a, b))


@_named("sum", "amax", "amin", "prod", "any", "all", "argmax", "argmin")
def _reduced(name: str, x: Tensor, dim: Any, keepdim: bool, dtype: Any) -> Call:
    packet = getattr(aten, name)
    more = {"dtype": dtype} if dtype is not None and name in ("sum", "prod") else {}
    if dim is None and not keepdim:
        return Call(packet.default, (x,), more)
    if name in ("sum", "amax", "amin") and isinstance(dim, int):
        dim = [dim]
    overload = {"sum": "dim_IntList", "prod": "dim_int", "any": "dim", "all": "dim"}.get(name, "default")
    given = (x, list(dim) if isinstance(dim, tuple) else dim, *([True] if keepdim else []))
    return Call(getattr(packet, overload), given, more)


@_named("matmul")
def _matmul(name: str, a: Tensor, b: Tensor) -> Call:
    found = {(2, 2): "mm", (3, 3): "bmm", (2, 1): "mv", (1, 1): "dot"}.get((a.dim(), b.dim()), "matmul")
    return Call(getattr(aten, found).default, (a, b))


@_named("copy")
def _copy(name: str, x: Tensor, dtype: Any, row_major: Any) -> Call:
    if dtype is not None:
        return Call(aten._to_copy.default, (x,), {"dtype": dtype})
    form = {"memory_format": import_module("norch").contiguous_format} if row_major else {}
    return Call(aten.clone.default, (x,), form)


@_named("to")
def _to(name: str, x: Tensor, device: Any) -> Call:
    return Call(aten._to_copy.default, (x,), {"device": device})


@_named("expand")
def _expand(name: str, x: Tensor, shape: Any) -> Call:
    same = tuple(shape) == tuple(x.spec.shape)
    return Call(aten.alias.default, (x,)) if same else Call(aten.expand.default, (x, list(shape)))


@_named("reshape")
def _reshape(name: str, x: Tensor, shape: Any) -> Call:
    return Call(aten.view.default, (x, list(shape)))


@_named("transpose")
def _transpose(name: str, x: Tensor, dim0: int, dim1: int) -> Call:
    if x.dim() == 2 and dim0 % 2 != dim1 % 2:
        return Call(aten.t.default, (x,))
    return Call(aten.transpose.int, (x, dim0, dim1))


@_named("select")
def _select(name: str, x: Tensor, dim: int, index: int, *shift: int) -> Call:
    return Call(aten.select.int, (x, dim, index))


@_named("slice")
def _sliced(name: str, x: Tensor, dim: int, start: int, length: int, step: int, *shift: int) -> Call:
    end = min(start + length * step, x.spec.shape[dim])
    return Call(aten.slice.Tensor, (x, dim, start, end, *([step] if step != 1 else [])))


@_named("as_strided")
def _as_strided(name: str, x: Tensor, shape: Any, strides: Any, shift: int, *more: int) -> Call:
    return Call(aten.as_strided.default, (x, list(shape), list(strides), shift))


@_named("bitcast")
def _bitcast(name: str, x: Tensor, dtype: Any, *offset: int) -> Call:
    return Call(aten.view.dtype, (x, dtype))


@_named("index")
def _indexed(name: str, x: Tensor, index: Tensor, dim: int) -> Call:
    if index.dim() == 1:
        return Call(aten.index_select.default, (x, dim, index))
    return Call(aten.index.Tensor, (x, [None] * dim + [index]))


@_named("softmax", "log_softmax")
def _softmax(name: str, x: Tensor, dim: int) -> Call:
    return Call(getattr(aten, f"_{name}").default, (x, dim, False))


@_named("cat", "stack")
def _joined(name: str, tensors: Any, dim: int) -> Call:
    return Call(getattr(aten, name).default, (list(tensors), *([dim] if dim else [])))


@_named("gelu")
def _gelu(name: str, x: Tensor, approximate: str) -> Call:
    return Call(aten.gelu.default, (x,), {} if approximate == "none" else {"approximate": approximate})


@_named("where")
def _where(name: str, condition: Tensor, a: Any, b: Any) -> Call:
    return Call(aten.where.self, (condition, a, b))


@_named("sort")
def _sorted(name: str, x: Tensor, dim: int, descending: bool) -> Call:
    return Call(aten.sort.default, (x, dim, *([True] if descending else [])))


@_named("triangle")
def _triangle(name: str, x: Tensor, diagonal: int, lower: bool) -> Call:
    return Call((aten.tril if lower else aten.triu).default, (x, *([diagonal] if diagonal else [])))


@_named("conv2d", "conv3d")
def _conv(
    name: str, input: Tensor, weight: Tensor, bias: Any, stride: Any, pads: Any, dilation: Any, groups: int
) -> Call | None:
    before, after = pads[::2], pads[1::2]
    if isinstance(pads[0], tuple):
        before, after = [p[0] for p in pads], [p[1] for p in pads]
    if tuple(before) != tuple(after):
        return None
    given = (input, weight, bias, list(stride), list(before), list(dilation), False, [0] * len(stride), groups)
    return Call(aten.convolution.default, given)


_SAME = frozenset(
    "abs acos acosh asin asinh atan atan2 atanh bitwise_not ceil clamp copysign cos cosh cumprod cumsum diagonal "
    "digamma erf erfc erfinv exp exp2 expm1 flip floor floor_divide frac gather hardsigmoid hardswish hypot "
    "leaky_relu lgamma log log10 log1p log2 logaddexp maximum minimum mish neg permute pow relu round rsqrt "
    "searchsorted sigmoid sign silu sin sinc sinh softplus sqrt tan tanh threshold topk trunc unfold xlogy".split()
)
"""Ops whose parameters are PyTorch's, in its order."""


@cache
def _own(op: Op) -> Overload:
    """An op of norch's own that PyTorch has no name for, under its name."""
    return Packet(op.name, op.call).default


def named(op: Op, args: tuple[Any, ...]) -> Call:
    """A call of norch's op as one of PyTorch's; of one that has no name there, as it is."""
    naming = _NAMES.get(op.name)
    found = naming(op.name, *args) if naming is not None else None
    if found is not None:
        return found
    if op.name in _SAME:
        given = tuple([list(a) if isinstance(a, tuple) else a for a in args])
        while len(given) > 1 and given[-1] is None:
            given = given[:-1]
        return Call(getattr(aten, op.name).default, given)
    return Call(_own(op), args)


def in_place(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """A call of the in-place method `name`, such as "add_"."""
    packet = getattr(aten, name)
    if len(args) == 1:
        return Call(packet.default, args, kwargs)
    scalar = name in ("eq_", "ne_", "lt_", "le_", "gt_", "ge_", "pow_", "remainder_", "fmod_", "fill_")
    if scalar or name.startswith("bitwise_"):
        return Call(packet.Tensor if _is_tensor(args[1]) else packet.Scalar, args, kwargs)
    known = name in ("add_", "sub_", "mul_", "div_")
    return Call(packet.Tensor if known else packet.default, args, kwargs)


def filled(spec: Spec, owner: Tensor, value: Any) -> Call:
    """A call that makes a tensor like `owner` of one value; None for any."""
    if value is None:
        return Call(aten.empty_like.default, (owner,))
    if value in (0, 1):
        return Call((aten.ones_like if value else aten.zeros_like).default, (owner,))
    return Call(aten.full_like.default, (owner, value))
