"""Complex numbers as pairs of real ones: what lies between `norch.fft`, `view_as_complex` or `polar` and what is real
again. No tensor has a complex dtype: a `ComplexPair` is no Tensor, though it is called as one where its methods reach.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from inspect import getattr_static
from typing import Any
from warnings import warn

import numpy as np

from ..autograd import is_grad_enabled
from ..dtype import ComplexDType, DType
from ..errors import DTypeError
from ..ops import as_tensor, atan2, broadcast_tensors, cos, exp, sin, stack
from ..ops.elementwise.complex_products import complex_abs, complex_mul
from ..ops.shape.views import permute, select_dim
from ..spec import wrap_dim
from ..tensor import Tensor
from ..tensor.indexing import unlisted
from .complex_description import Described
from .complex_views import MOVES_IN_PLACE, VIEWS, move_in_place, view_of

INSTEAD = (
    "no tensor of norch is complex: z.real, z.imag and view_as_real(z), whose last dim holds both, are tensors with "
    "all ops, and view_as_complex() makes a ComplexPair of one again"
)


class ComplexPair(Described):
    """Complex numbers of shape (...), kept as a floating tensor `pair` of shape (..., 2): real and imaginary parts.

    It adds, subtracts, multiplies and divides, with pairs, tensors and Python's numbers; indexing, `abs`, `angle`,
    `conj`, `exp`, `sum`, `mean`, and methods that only move elements do what those of a complex tensor do, and
    gradients flow. The functions of the same names take it, `cat`, `stack`, `einsum` and `matmul` too. Anything else
    raises, saying what there is instead.
    """

    __slots__ = ("pair",)
    __array_ufunc__ = None  # NumPy's arrays leave their operators to the pair
    pair: Tensor

    def __init__(self, pair: Tensor) -> None:
        object.__setattr__(self, "pair", pair)

    # --- As a tensor ------------------------------------------------------------------------------------------------

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """To programs that have norch as `torch` a pair is a Tensor, as PyTorch's complex tensors are, or a
        Parameter."""
        torch = sys.modules.get("torch")
        if torch is None:
            return ComplexPair
        asking: Any = sys._getframe(1)
        if asking.f_code.co_name == "__instancecheck__":  # of Parameter's class, which asks for someone else
            asking = asking.f_back
        if asking.f_globals.get("__name__", "").startswith("norch"):
            return ComplexPair
        return type(self.pair) if getattr(torch, "Tensor", None) is Tensor else ComplexPair

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """What was put on it: the attributes of its pair."""
        return vars(self.pair)

    def __reduce__(self) -> Any:
        return ComplexPair, (self.pair,)

    @property
    def real(self) -> Tensor:
        """The real parts, a view; what is assigned is written into it."""
        return _part(self.pair, 0)

    @real.setter
    def real(self, value: Any) -> None:
        self.pair[..., 0] = value

    @property
    def imag(self) -> Tensor:
        """The imaginary parts, as `real`."""
        return _part(self.pair, 1)

    @imag.setter
    def imag(self, value: Any) -> None:
        self.pair[..., 1] = value

    data = property(lambda self: ComplexPair(self.pair.data), doc="The same numbers, without the graph.")
    T = property(lambda self: ComplexPair(self.pair.permute(*range(self.ndim)[::-1], -1)), doc="Dims in reverse order.")
    mT = property(lambda self: self.transpose(-2, -1), doc="The last two dims exchanged.")
    mH = property(lambda self: self.conj().transpose(-2, -1), doc="The conjugate of `mT`.")
    H = property(lambda self: self.conj().transpose(0, 1), doc="The conjugate of a matrix, transposed.")

    @property
    def grad(self) -> ComplexPair | None:
        """The derivatives with respect to the real and the imaginary parts, as PyTorch's, or None."""
        return None if self.pair.grad is None else ComplexPair(self.pair.grad)

    @grad.setter
    def grad(self, value: ComplexPair | None) -> None:
        self.pair.grad = None if value is None else value.pair

    def __bool__(self) -> bool:
        return bool(_functions()["ne"](self, 0))

    # --- Arithmetic -------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if isinstance(other, ComplexPair):
            return ComplexPair(self.pair + other.pair)
        re, im = parts_of(other)
        return NotImplemented if re is None else joined(self.real + re, self.imag + im)

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        other = _of_numpy(other)
        if not isinstance(other, ComplexPair | complex):
            factor = other.unsqueeze(-1) if isinstance(other, Tensor) else other
            return ComplexPair(self.pair * factor)
        pair = other.pair if isinstance(other, ComplexPair) else self.pair.new_tensor([other.real, other.imag])
        return ComplexPair(complex_mul(self.pair, pair, False))

    def __truediv__(self, other: Any) -> Any:
        other = _of_numpy(other)
        if not isinstance(other, ComplexPair | complex):
            return ComplexPair(self.pair / (other.unsqueeze(-1) if isinstance(other, Tensor) else other))
        c, d = parts_of(other)
        return self * joined(self.real * 0 + c, self.real * 0 - d) / (c * c + d * d)

    def __rtruediv__(self, other: Any) -> Any:
        return self.conj() * other / (self.real * self.real + self.imag * self.imag)

    def _put(self, result: Any) -> ComplexPair:
        self.pair.copy_(result.pair)
        return self

    def _kept(self, *others: Any) -> ComplexPair:
        """What a result is computed of that is written over these numbers: gradients may need them as they were."""
        if is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in (self, *others)):
            copy: ComplexPair = self.clone()
            return copy
        return self

    def add_(self, other: Any, *, alpha: Any = 1) -> ComplexPair:
        """`self + alpha * other`, written into the pair."""
        return self._put(self + other * alpha)

    def sub_(self, other: Any, *, alpha: Any = 1) -> ComplexPair:
        """`self - alpha * other`, written into the pair."""
        return self._put(self - other * alpha)

    def mul_(self, other: Any) -> ComplexPair:
        """`self * other`, written into the pair."""
        return self._put(self._kept(other) * other)

    def div_(self, other: Any) -> ComplexPair:
        """`self / other`, written into the pair."""
        return self._put(self._kept(other) / other)

    def __neg__(self) -> ComplexPair:
        return ComplexPair(-self.pair)

    def __pos__(self) -> ComplexPair:
        return self

    def __matmul__(self, other: Any) -> Any:
        return _functions()["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _functions()["matmul"](other, self)

    def __pow__(self, exponent: Any) -> Any:
        return _functions()["pow"](self, exponent)

    def __rpow__(self, base: Any) -> Any:
        return _functions()["pow"](base, self)

    def __eq__(self, other: object) -> Any:
        return NotImplemented if parts_of(other)[0] is None else _functions()["eq"](self, other)

    def __ne__(self, other: object) -> Any:
        return NotImplemented if parts_of(other)[0] is None else _functions()["ne"](self, other)

    __hash__ = object.__hash__
    __radd__, __rmul__ = __add__, __mul__
    __iadd__, __isub__, __imul__, __itruediv__ = add_, sub_, mul_, div_
    mul, div, neg = __mul__, __truediv__, __neg__

    def add(self, other: Any, *, alpha: Any = 1) -> Any:
        return self + (other if alpha == 1 else other * alpha)

    def sub(self, other: Any, *, alpha: Any = 1) -> Any:
        return self - (other if alpha == 1 else other * alpha)

    def abs(self) -> Tensor:
        """sqrt(real**2 + imag**2), without overflow; its gradient at 0 is 0."""
        return complex_abs(self.pair)

    __abs__ = abs

    def angle(self) -> Tensor:
        return atan2(self.imag, self.real)

    def exp(self) -> ComplexPair:
        size = exp(self.real)
        return joined(size * cos(self.imag), size * sin(self.imag))

    def conj(self) -> ComplexPair:
        return joined(self.real, -self.imag)

    conj_physical = conj

    def resolve_conj(self) -> ComplexPair:
        return self

    def adjoint(self) -> ComplexPair:
        return self.mH  # type: ignore[no-any-return]

    def sum(self, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        if dtype is not None:
            return self.to(dtype).sum(dim, keepdim)
        return joined(self.real.sum(dim, keepdim), self.imag.sum(dim, keepdim))

    def mean(self, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        if dtype is not None:
            return self.to(dtype).mean(dim, keepdim)
        return joined(self.real.mean(dim, keepdim), self.imag.mean(dim, keepdim))

    # --- Elements ---------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> ComplexPair:
        return ComplexPair(self.pair[_index(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, ComplexPair | Tensor):
            self.pair[_index(index)] = stack(tensors_of(value), -1)
        else:
            self.pair[_index(index)] = self.pair.new_tensor(parts_of(value))

    def copy_(self, src: Any, non_blocking: bool = False) -> ComplexPair:
        """Puts the numbers of `src`, a pair, a tensor or a number, into this one's memory."""
        self[...] = src
        return self

    fill_ = copy_

    def view(self, *shape: Any, dtype: Any = None) -> Any:
        """As `Tensor.view`: of a dtype the parts side by side."""
        kind = dtype if dtype is not None else shape[0] if len(shape) == 1 else None
        if kind is self.dtype:
            return self
        if isinstance(kind, ComplexDType | DType):
            return self.pair.flatten(-2).view(kind)
        return self.reshape(*shape)

    def reshape(self, *shape: Any) -> ComplexPair:
        size = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        return ComplexPair(self.pair.reshape(*size, 2))

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """As `Tensor.to`: complex64 gives parts of float32; of a real dtype the real parts alone, with a warning."""
        given = [x.dtype if isinstance(x, Tensor | ComplexPair) else x for x in (*args, *kwargs.values())]
        if any(isinstance(x, DType) for x in given):
            warn("to(): casting complex numbers to real ones leaves the imaginary parts out", stacklevel=2)
            return self.real.to(*args, **kwargs)

        def of_parts(value: Any) -> Any:
            value = value.dtype if isinstance(value, ComplexPair) else value
            return value.parts if isinstance(value, ComplexDType) else value

        return ComplexPair(self.pair.to(*map(of_parts, args), **{name: of_parts(v) for name, v in kwargs.items()}))

    def _add_batch_dim(self, in_dim: int, vmap_level: int) -> ComplexPair:
        """One sample of numbers whose dim `in_dim` the samples of a `vmap` are along."""
        return ComplexPair(_module("norch.compat.batched_tensors")._add_batch_dim(self.pair, in_dim, vmap_level))

    def _maybe_remove_batch_dim(self, name: str, vmap_level: int, batch_size: int, out_dim: int | None) -> ComplexPair:
        """All samples of such numbers, along dim `out_dim`."""
        at = out_dim if out_dim is None else wrap_dim(out_dim, self.pair.ndim, "vmap")
        remove = _module("norch.compat.batched_tensors")._maybe_remove_batch_dim
        return ComplexPair(remove(name, self.pair, vmap_level, batch_size, at))

    def backward(self, gradient: Any = None, **kwargs: Any) -> None:
        """As `Tensor.backward`: `gradient`, of the numbers' shape, is needed."""
        self.pair.backward(None if gradient is None else gradient.pair, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_PAIR:
            return lambda *args, **kwargs: ComplexPair(getattr(self.pair, name)(*args, **kwargs))
        if name in VIEWS:
            return partial(view_of, name, self)
        if name in _OF_PARTS:
            return partial(_by_parts, name, self)
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _functions():
            return partial(_functions()[name], self)
        more = _module("norch.compat.complex_more")
        if name in more.PARTS_OF_PAIR:
            return getattr(self.pair, name)
        stem = name.removesuffix("_")
        if name in MOVES_IN_PLACE:
            return partial(move_in_place, name, self)
        if name in more.PARTS_IN_PLACE:
            return lambda *args, **kwargs: (_by_parts(name, self, *args, **kwargs), self)[1]
        if stem in more.OTHER_NAMES:
            return getattr(self, more.OTHER_NAMES[stem] + name[len(stem) :])
        if stem != name and (stem in _functions() or stem in ("neg", "exp", "conj_physical")):
            return lambda *args, **kwargs: self._put(getattr(self._kept(*args), stem)(*args, **kwargs))
        kind = type(self.pair)  # at times a class of one's own, with attributes
        if kind is not Tensor and not hasattr(Tensor, name):
            if name in self.__dict__:
                return self.__dict__[name]
            if hasattr(kind, name):
                found = getattr_static(kind, name)
                return found.__get__(self, kind) if hasattr(found, "__get__") else found
        raise AttributeError(f"a ComplexPair has no {name!r}; {INSTEAD}")

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self if hasattr(ComplexPair, name) else self.pair, name, value)

    def as_subclass(self, cls: type) -> ComplexPair:
        """The same numbers, whose parts are objects of `cls`, a subclass of Tensor."""
        return ComplexPair(self.pair.as_subclass(cls))

    @staticmethod
    def _norch_function(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function of norch gives that was called with a pair."""
        if not args:  # all by name
            (_, first), *rest = kwargs.items()
            args, kwargs = (first,), dict(rest)
        if name in _functions():
            return _functions()[name](*args, **kwargs)
        known = hasattr(ComplexPair, name) or name in VIEWS or name in _OF_PAIR or name in _OF_PARTS
        if known and isinstance(args[0], ComplexPair):
            return getattr(args[0], name)(*args[1:], **kwargs)
        title = {"div": "truediv"}.get(name, name)
        reflected = getattr(ComplexPair, f"__r{title}__", None) if len(args) == 2 else None
        if reflected is not None:
            return reflected(args[1], args[0])
        raise DTypeError(f"{name}(): does not take a ComplexPair; {INSTEAD}")


_OF_PAIR = frozenset({"clone", "contiguous", "cpu", "cuda", "detach", "requires_grad_", "zero_"})
_OF_PARTS = frozenset({
    "diag", "diag_embed", "diagflat", "diagonal_scatter", "diff", "dsplit", "flip", "fliplr",
    "flipud", "gather", "hsplit", "index_add", "index_copy", "index_put", "index_select", "masked_scatter",
    "masked_select", "nansum", "narrow_copy", "put", "repeat", "repeat_interleave", "roll", "rot90",
    "scatter_add", "select_scatter", "slice_scatter", "sum_to_size", "take", "take_along_dim", "tile",
    "trace", "tril", "triu", "vsplit",
})  # fmt: skip


def _module(name: str) -> Any:
    return sys.modules.get(name) or import_module(name)


def _functions() -> dict[str, Any]:
    return _module("norch.compat.complex_functions").FUNCTIONS  # type: ignore[no-any-return]


def _by_parts(name: str, *args: Any, **kwargs: Any) -> Any:
    """What a linear method gives, or the pairs of what it gives several of."""

    def of(part: int) -> Any:
        first, *rest = [parts_of(a)[part] if isinstance(a, ComplexPair) else a for a in args]
        return getattr(first, name)(*rest, **kwargs)

    re, im = of(0), of(1)
    return joined(re, im) if isinstance(re, Tensor) else tuple(map(joined, re, im))


def _of_numpy(value: Any) -> Any:
    """NumPy's arrays as tensors or pairs, its numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    return as_tensor(value) if isinstance(value, np.ndarray) else value


def parts_of(value: Any) -> tuple[Any, Any]:
    """Real and imaginary parts; (None, None) for what has none."""
    if type(value) is ComplexPair:
        return _part(value.pair, 0), _part(value.pair, 1)
    value = _of_numpy(value)
    if isinstance(value, ComplexPair | complex):
        return value.real, value.imag
    return (value, 0.0) if isinstance(value, Tensor | int | float) else (None, None)


def _part(pair: Tensor, index: int) -> Tensor:
    if type(pair) is Tensor:
        return select_dim(pair, pair.spec.ndim - 1, index)
    return pair.select(-1, index)  # which asks a class of one's own


def tensors_of(value: Any) -> tuple[Tensor, Tensor]:
    """Real and imaginary parts of a pair or a tensor, zeros for what there is none of."""
    re, im = parts_of(value)
    return re, im if isinstance(im, Tensor) else re.new_zeros(()).expand(re.shape)


def joined(re: Tensor, im: Tensor) -> ComplexPair:
    if re.spec.shape != im.spec.shape:
        re, im = broadcast_tensors(re, im)
    order = (*range(1, re.spec.ndim + 1), 0)
    return ComplexPair(permute(stack([re, im], 0), order))  # each part in one piece, since pairs are slow to make


def _index(index: Any) -> Any:
    """An index of the numbers as one of the pairs."""
    index = unlisted(index) if isinstance(index, list) else index
    given = index if isinstance(index, tuple) else (index,)
    return (*given, slice(None)) if any(i is Ellipsis for i in given) else given
