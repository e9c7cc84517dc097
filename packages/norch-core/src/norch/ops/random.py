"""Random tensors. Every draw is keyed by (seed, offset, element index), so one seed gives the same on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..autograd.graph import is_recording, mark_modified
from ..autograd.versions import is_unwatched, unwatched
from ..dispatch.arguments import must_be
from ..dispatch.plan import SCALARS
from ..dtype import FLOATING, DType, as_dtype, bool_, finfo, get_default_dtype, iinfo, int64
from ..errors import DTypeError, ShapeError, WeightsError
from ..spec import Spec, as_int, broadcast_shapes
from .creation import DeviceLike, empty_spec, like_spec, spec_for, with_options
from .elementwise.arithmetic import where
from .families import floating
from .generator import DRAW, Generator, chosen_generator, default_generator
from .generator import current_generator as current_generator  # these are norch.random's names
from .generator import draw_keyed as draw_keyed
from .generator import fork_rng as fork_rng
from .generator import get_rng_state as get_rng_state
from .generator import initial_seed as initial_seed
from .generator import manual_seed as manual_seed
from .generator import seed as seed
from .generator import set_rng_state as set_rng_state
from .generator import use_generator as use_generator
from .reduction.sorting import argsort
from .registry import method, public
from .upcast import upcast_dtype

if TYPE_CHECKING:
    from ..tensor import Tensor


def draw(spec: Spec, kind: str, generator: Generator | None) -> Tensor:
    """One draw of the primitive `random`."""
    return (generator or chosen_generator.get() or default_generator).draw(spec, kind)


def _draw_floating(
    op: str, kind: str, size: Any, dtype: Any, device: DeviceLike, generator: Generator | None
) -> Tensor:
    spec = spec_for(size, dtype, device, op)
    if spec.dtype.category != FLOATING:
        floating(op, spec)  # raises
    return (generator or chosen_generator.get() or default_generator).draw(spec, kind)


def _drawn_like(
    op: str, kind: str, input: Tensor, dtype: Any, device: DeviceLike, generator: Generator | None
) -> Tensor:
    spec = like_spec(input, None, dtype, device, op)
    if spec.is_contiguous:
        return _draw_floating(op, kind, tuple(spec.shape), spec.dtype, spec.device, generator)
    floating(op, spec)
    out = empty_spec(spec)
    return out.uniform_(generator=generator) if kind == "uniform" else out.normal_(generator=generator)


def _drawing(name: str, kind: str, doc: str) -> Callable[..., Tensor]:
    """`rand` and `randn`."""

    def function(
        *shape: Any,
        size: Any = None,
        generator: Generator | None = None,
        dtype: Any = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
        **more: Any,
    ) -> Tensor:
        if more and dtype is None:
            dtype = getattr(more.get("out"), "dtype", None)
        spec = spec_for(shape if size is None else size, dtype, device, name)
        if dtype is not None and spec.dtype.category != FLOATING:
            floating(name, spec)  # raises
        try:
            out = (generator or chosen_generator.get() or default_generator).draw(spec, kind)
        except AttributeError:
            if generator is None or isinstance(generator, Generator):
                raise
            raise DTypeError(f"{name}(): {must_be('generator', 'Generator', generator)}") from None
        return with_options(name, out, requires_grad, more) if more or requires_grad else out

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return public(method=False)(function)


rand = _drawing(
    "rand",
    "uniform",
    "Uniform in [0, 1), of shape `size`, by Philox4x32-10 (Salmon et al., 2011). Raises DTypeError unless floating.",
)
randn = _drawing(
    "randn",
    "normal",
    "Normal with mean 0 and variance 1, of shape `size`, by Box and Muller (1958). Raises as rand does.",
)


@public(method=False)
def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """`rand` in input's shape and layout, and its dtype and device unless given. Raises as rand does."""
    out = _drawn_like("rand_like", "uniform", input, dtype, device, generator)
    return with_options("rand_like", out, requires_grad, more) if more or requires_grad else out


@public(method=False)
def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """`randn` in input's shape and layout, and its dtype and device unless given. Raises as randn does."""
    out = _drawn_like("randn_like", "normal", input, dtype, device, generator)
    return with_options("randn_like", out, requires_grad, more) if more or requires_grad else out


_FEW = 4096
"""Integers that `randint` makes without in-place steps, which take longer to call."""


@public(method=False)
def randint(
    low: Any = None,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """Integers from `low` (0 if left out) up to but not including `high`, of shape `size`; int64 unless `dtype`.

    By multiplication (Lemire, 2019) of 32 random bits with the range, or the remainder of 63 for ranges over 2**32; of
    64 for those from 2**63 on, drawn again where they are beyond the bounds.
    Raises ShapeError for an empty range, DTypeError for bounds that are no ints or that the dtype cannot hold.
    """
    if size is None:  # randint(high, size)
        low, high, size = None, low, high
    if high is None or low is None:
        low, high = 0, low if high is None else high
    first, last = as_int(low, "randint", "low"), as_int(high, "randint", "high")
    count = last - first
    if count <= 0 or first < -(2**63) or last > 2**63:
        raise ShapeError(f"randint(): no integers, or too many, from {first} up to {last}")
    spec = spec_for(size, dtype or int64, device, "randint")
    if spec.dtype is not int64:
        _require_held("randint", first, last - 1, spec.dtype)
    bits = spec.like(dtype=int64)
    # In the memory of what is drawn: that of each step is slow to get, where it is much.
    out: Any
    if count < 2**31 and bits.numel < _FEW:
        out = draw(bits, "bits", generator) * count >> 32
    elif count < 2**31:
        out = draw(bits, "bits", generator).mul_(count).bitwise_right_shift_(32)
    elif count < 2**63:
        out = draw(bits, "bits64", generator).remainder_(count)
    else:
        out, first = _of_all(bits, first, last, generator), 0
    if first:
        out.add_(first)
    out = out if spec.dtype is int64 else out.to(spec.dtype)
    return with_options("randint", out, requires_grad, more) if more or requires_grad else out


def _require_held(op: str, first: int, last: int, dtype: DType) -> None:
    """Raises DTypeError for integers from `first` up to `last` that the dtype cannot hold."""
    limits: Any = None if dtype is bool_ else (finfo if dtype.is_floating_point else iinfo)(dtype)
    least, most = (0, 1) if limits is None else (limits.min, limits.max)
    if first < least or last > most:
        raise DTypeError(f"{op}(): {first if first < least else last} is out of range for {dtype}")


def _of_all(spec: Spec, first: int, last: int, generator: Generator | None) -> Tensor:
    """Integers of a range that holds half of int64's or more."""

    def signed() -> Any:
        return (draw(spec, "bits", generator) - 2**31) * 2**32 + draw(spec, "bits", generator)

    out = signed()
    while bool((beyond := (out < first) | (out > last - 1)).any().item()):
        out = where(beyond, signed(), out)
    return out  # type: ignore[no-any-return]


@public(method=False)
def randint_like(
    input: Tensor,
    low: int | None = None,
    high: int | None = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """`randint` in input's shape and layout, and its dtype and device unless given. Raises as randint does."""
    spec = like_spec(input, None, dtype, device, "randint_like")
    out = randint(low, high, tuple(spec.shape), generator=generator, dtype=spec.dtype, device=spec.device)
    if not spec.is_contiguous:
        out = empty_spec(spec).copy_(out)
    return with_options("randint_like", out, requires_grad, more) if more or requires_grad else out


def _most_counted(dtype: DType) -> int:
    """The last integer up to which the dtype holds all of them."""
    return int(2 / finfo(dtype).eps) if dtype.is_floating_point else 1 if dtype is bool_ else iinfo(dtype).max


@public(method=False)
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """A random permutation of 0 to n - 1, int64 unless `dtype`: the argsort of random keys. DTypeError for what is no
    int, and for a dtype that cannot hold all of them.
    """
    spec = spec_for((as_int(n, "randperm", "n"),), int64, device, "randperm")
    chosen = int64 if dtype is None else as_dtype(dtype, "randperm")
    if n > _most_counted(chosen) + 1:
        raise DTypeError(f"randperm(): {n - 1} is out of range for {chosen}, or falls between two of its numbers")
    out = argsort(draw(spec, "bits64", generator))
    out = out if dtype is None else out.to(chosen)
    return with_options("randperm", out, requires_grad, more) if more or requires_grad else out


@public()
def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability in each element of input (or `p`), else 0; dtype kept. DTypeError unless floating,
    WeightsError for a `p` beyond 0 and 1; elements of input are not looked at.
    """
    if p is None:
        floating("bernoulli", input.spec)
    elif not 0 <= p <= 1:
        raise WeightsError(f"bernoulli(): p must be between 0 and 1, got {p}")
    dtype = input.dtype if input.dtype.is_floating_point else get_default_dtype()
    drawn = draw(input.spec.like(dtype=upcast_dtype(dtype)), "uniform", generator)
    return (drawn < (input.detach() if p is None else p)).to(input.dtype)


@public(method=False)
def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """Normal with the given `mean` and standard deviation `std`: numbers, or tensors of one element, with `size`; or
    tensors that broadcast.

    Raises ShapeError for a negative standard deviation, for two numbers without a size, and for tensors of several
    elements with one.
    """
    if size is not None:
        mean, std = (v.item() if hasattr(v, "spec") else v for v in (mean, std))
    if not hasattr(std, "spec") and std < 0:
        raise ShapeError(f"normal(): std must not be negative, got {std}")
    given = [v for v in (mean, std) if hasattr(v, "spec")]
    if not given:
        if size is None:
            raise ShapeError("normal(): needs a size where mean and std are numbers")
        dtype = dtype or getattr(more.get("out"), "dtype", None)
        out = _moved(randn(size, generator=generator, dtype=dtype, device=device), std, mean)
        return with_options("normal", out, requires_grad, more)
    shape = broadcast_shapes(*[v.spec.shape for v in given], op="normal")
    like = given[0]
    out = randn(shape, generator=generator, dtype=like.dtype, device=like.device) * std + mean
    return with_options("normal", out, requires_grad, more) if more or requires_grad else out


def _moved(drawn: Tensor, factor: float, shift: float) -> Tensor:
    """drawn * factor + shift, in the memory of `drawn`: a large table of weights is there twice as it is."""
    if factor != 1:
        drawn.mul_(factor)
    return drawn.add_(shift) if shift != 0 else drawn


# --- In-place draws -------------------------------------------------------------------------------------------------


def _named_bounds(op: str, low: Any, high: Any, more: dict[str, Any]) -> tuple[Any, Any]:
    """Bounds, of which PyTorch names one by a word of Python's: `**{"from": 1, "to": 2}`."""
    low, high = more.pop("from", low), more.pop("to", high)
    if more:
        raise TypeError(f"{op}(): unexpected argument {next(iter(more))!r}; it takes from, to and generator")
    return low, high


def draws_into(self: Tensor, generator: Generator) -> bool:
    """Whether draws may be made in the tensor's own memory: nothing but it is to know of them."""
    is_plain = type(self.spec) is Spec and not self.spec.overlaps and not self.is_meta and self.left_to is None
    is_alone = self.base is None and (self.node is None or not is_recording())
    return is_plain and is_alone and type(generator) is Generator


def _drawn_in_place(self: Tensor, op: str, kind: str, generator: Generator | None) -> bool:
    """Fills the tensor with draws; False where these are to be copied into it."""
    source = generator or current_generator()
    if self.spec.dtype.category != FLOATING or not draws_into(self, source):
        return False
    DRAW.into(self, self.spec, kind, *source.next())
    mark_modified(self, op)
    return True


@method()
def uniform_(
    self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None, **bounds: Any
) -> Tensor:
    """Fills the tensor with numbers uniform in [a, b), which may also be given as `from` and `to`.

    Raises DTypeError unless floating, WeightsError for a > b, TypeError for other arguments.
    """
    if bounds:
        a, b = _named_bounds("uniform_", a, b, bounds)
    if not a <= b:
        raise WeightsError(f"uniform_(): no numbers lie from {a} up to {b}")
    if self.is_meta:  # nothing to fill, so that no number is drawn
        return self
    if is_unwatched(self):
        with unwatched(self, "uniform_"):
            self.detach().uniform_(a, b, generator=generator)
        return self
    if _drawn_in_place(self, "uniform_", "uniform", generator):
        return _moved(self, b - a, a)
    drawn = _draw_floating("uniform_", "uniform", tuple(self.shape), self.dtype, self.device, generator)
    return self.copy_(_moved(drawn, b - a, a))


@method()
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor with normal numbers of this `mean` and standard deviation `std`. Raises as normal does."""
    if self.is_meta:
        return self
    if is_unwatched(self):
        with unwatched(self, "normal_"):
            self.detach().normal_(mean, std, generator=generator)
        return self
    if (
        type(mean) in SCALARS
        and type(std) in SCALARS
        and std >= 0
        and _drawn_in_place(self, "normal_", "normal", generator)
    ):
        return _moved(self, std, mean)
    return self.copy_(normal(mean, std, tuple(self.shape), generator=generator, dtype=self.dtype, device=self.device))


@method()
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor, of any shape, with 1 with probability `p`, a number or a tensor that expands to it, else 0.
    Raises as bernoulli does.
    """
    if hasattr(p, "spec"):
        return self.copy_(bernoulli(p.expand(tuple(self.shape)), generator=generator))
    return self.copy_(bernoulli(self, p, generator=generator))


@method()
def random_(
    self: Tensor, low: int | None = None, high: Any = ..., *, generator: Generator | None = None, **bounds: Any
) -> Tensor:
    """Fills the tensor with integers from `low` up to but not including `high`; also given as `from` and `to`.

    One number is `high`, from 0 on. With None for `high`, or nothing at all, the largest is the dtype's, or of floating
    ones the last up to which they hold all integers. Raises ShapeError for an empty range, DTypeError for bounds that
    the dtype cannot hold, TypeError for other arguments.
    """
    if bounds:
        low, high = _named_bounds("random_", low, high, bounds)
    if high is ... and low is not None:
        low, high = 0, low
    if high is None or high is ...:
        high = min(_most_counted(self.dtype), 2**63 - 1) + 1
    _require_held("random_", low or 0, high - 1, self.dtype)
    return self.copy_(randint(low or 0, high, tuple(self.shape), generator=generator, device=self.device))
