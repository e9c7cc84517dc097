"""Random tensors. Every draw is keyed by (seed, offset, element index), so one seed gives the same on any device."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

from ..device import CPU, Device
from ..dispatch.plan import Inferred
from ..dtype import FLOATING, as_dtype, get_default_dtype, int64, uint8
from ..errors import DTypeError, ShapeError
from ..spec import Spec, as_int, broadcast_shapes
from .creation import DeviceLike, finish, spec_for, with_options
from .families import floating, primitive
from .from_data import frombuffer
from .reduction.sorting import argsort
from .registry import method, public
from .upcast import upcast_dtype

if TYPE_CHECKING:
    from ..tensor import Tensor

_MASK = 2**64 - 1


@public(method=False)
class Generator:
    """A source of random numbers: a seed, and the count of draws so far. Give it as `generator=` to any random op."""

    def __init__(self, device: Device | str = CPU) -> None:
        self.device = Device(device)
        self._seed, self._offset = 0, 0
        self._lock = threading.Lock()

    def manual_seed(self, seed: int) -> Generator:
        """Starts afresh from `seed`, an int taken modulo 2**64."""
        with self._lock:
            self._seed, self._offset = as_int(seed, "manual_seed", "seed") & _MASK, 0
        return self

    def seed(self) -> int:
        """Starts afresh from a seed that the operating system gives, and returns it."""
        import secrets

        value = secrets.randbits(63)
        self.manual_seed(value)
        return value

    def initial_seed(self) -> int:
        """The seed that it started from."""
        return self._seed

    def get_state(self) -> Tensor:
        """All that decides what comes next: seed and offset as the 16 bytes of a uint8 tensor on the CPU."""
        with self._lock:
            state = self._seed.to_bytes(8, "little") + self._offset.to_bytes(8, "little")
        return frombuffer(bytearray(state), dtype=uint8)

    def set_state(self, state: Tensor | tuple[int, int]) -> Generator:
        """Goes back to where `get_state` was called. Also takes the pair (seed, offset).

        Raises DTypeError for anything else.
        """
        spec = getattr(state, "spec", None)
        if spec is not None and spec.dtype is uint8 and spec.shape == (16,):
            state = struct.unpack("<2Q", bytes(state.tolist()))  # type: ignore[union-attr]
        if not (isinstance(state, tuple | list) and len(state) == 2):
            description = f"{spec.dtype} of shape {tuple(spec.shape)}" if spec is not None else f"{state!r:.60}"
            raise DTypeError(f"set_state(): expected the uint8 tensor that get_state() gives, got {description}")
        seed, offset = (as_int(n, "set_state", what) & _MASK for n, what in zip(state, ("seed", "offset"), strict=True))
        with self._lock:
            self._seed, self._offset = seed, offset
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def next(self) -> tuple[int, int]:
        """The seed and offset of the next draw, which is thereby taken."""
        with self._lock:
            offset = self._offset
            self._offset = (offset + 1) & _MASK
            return self._seed, offset


default_generator = Generator()
_chosen: ContextVar[Generator | None] = ContextVar("generator", default=None)


@public(method=False)
class use_generator:
    """In a `with` block, random ops of this thread (or asyncio task) draw from `generator` unless given another.

    It stands for the default generator there, in `manual_seed` and the functions below too. Other threads see nothing
    of it, so that a thread can draw in a fixed order whatever the others do.
    """

    __slots__ = ("_generator", "_token")

    def __init__(self, generator: Generator) -> None:
        if not isinstance(generator, Generator):
            raise DTypeError(f"use_generator(): expected a Generator, got {type(generator).__name__}")
        self._generator = generator

    def __enter__(self) -> Generator:
        self._token: Token[Generator | None] = _chosen.set(self._generator)
        return self._generator

    def __exit__(self, *exception: object) -> None:
        _chosen.reset(self._token)


@public(method=False)
def current_generator() -> Generator:
    """What random ops draw from here unless given a generator: the default one, or that of `use_generator`."""
    return _chosen.get() or default_generator


@public(method=False)
def manual_seed(seed: int) -> Generator:
    """Seeds the generator that random ops use unless given another. Raises DTypeError for a seed that is no int."""
    return current_generator().manual_seed(seed)


@public(method=False)
def seed() -> int:
    """Seeds the default generator from the operating system, and returns the seed."""
    return current_generator().seed()


@public(method=False)
def initial_seed() -> int:
    """The seed of the default generator."""
    return current_generator().initial_seed()


@public(method=False)
def get_rng_state() -> Tensor:
    """The default generator's state, a uint8 tensor. It serves all devices: there is no other to keep."""
    return current_generator().get_state()


@public(method=False)
def set_rng_state(new_state: Tensor | tuple[int, int]) -> None:
    """Puts the default generator back to a state that `get_rng_state` gave."""
    current_generator().set_state(new_state)


@contextmanager
def fork_rng(devices: object = None, enabled: bool = True) -> Iterator[None]:
    """Restores the default generator after this block, whatever is drawn or seeded in it.

    `devices` is not needed: one generator serves them all.
    """
    generator = current_generator()
    state = generator.get_state()
    try:
        yield
    finally:
        if enabled:
            generator.set_state(state)


def _infer_random(spec: Spec, kind: str, seed: type, offset: type) -> Inferred:
    return Inferred((spec,), ((int64, ()), (int64, ())), {"kind": kind})


_RANDOM = primitive("random", "spec kind seed offset", (), _infer_random, scalars=(2, 3))


def draw(spec: Spec, kind: str, generator: Generator | None) -> Tensor:
    """One draw of the primitive `random`."""
    seed, offset = (generator or _chosen.get() or default_generator).next()
    return _RANDOM.call(spec, kind, seed, offset)


def draw_keyed(spec: Spec, kind: str, seed: int, offset: int) -> Tensor:
    """The draw that a generator in state (seed, offset) would make."""
    return _RANDOM.call(spec, kind, seed, offset)


def _draw_floating(
    op: str, kind: str, size: Any, dtype: Any, device: DeviceLike, generator: Generator | None
) -> Tensor:
    spec = spec_for(size, dtype, device, op)
    if spec.dtype.category != FLOATING:
        floating(op, spec)  # raises
    seed, offset = (generator or _chosen.get() or default_generator).next()
    return _RANDOM.call(spec, kind, seed, offset)


@public(method=False)
def rand(
    *shape: Any,
    size: Any = None,
    generator: Generator | None = None,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """Uniform in [0, 1), of shape `size`, by Philox4x32-10 (Salmon et al., 2011). Raises DTypeError unless floating."""
    out = _draw_floating("rand", "uniform", shape if size is None else size, dtype, device, generator)
    return with_options("rand", out, requires_grad, more) if more or requires_grad else out


@public(method=False)
def randn(
    *shape: Any,
    size: Any = None,
    generator: Generator | None = None,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """Normal with mean 0 and variance 1, of shape `size`, by Box and Muller (1958). DTypeError unless floating."""
    out = _draw_floating("randn", "normal", shape if size is None else size, dtype, device, generator)
    return with_options("randn", out, requires_grad, more) if more or requires_grad else out


@public(method=False)
def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """`rand` in input's shape, and its dtype and device unless given. Raises as rand does."""
    shape, chosen, place = tuple(input.spec.shape), dtype or input.dtype, device or input.device
    return finish(_draw_floating("rand_like", "uniform", shape, chosen, place, generator), requires_grad)


@public(method=False)
def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """`randn` in input's shape, and its dtype and device unless given. Raises as randn does."""
    shape, chosen, place = tuple(input.spec.shape), dtype or input.dtype, device or input.device
    return finish(_draw_floating("randn_like", "normal", shape, chosen, place, generator), requires_grad)


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
) -> Tensor:
    """Integers from `low` (0 if left out) up to but not including `high`, of shape `size`; int64 unless `dtype`.

    By multiplication (Lemire, 2019) of 32 random bits with the range, or the remainder of 63 for ranges over 2**32.
    Raises ShapeError for an empty range, DTypeError for bounds that are no ints.
    """
    if size is None:  # randint(high, size)
        low, high, size = None, low, high
    if high is None or low is None:
        low, high = 0, low if high is None else high
    first, last = as_int(low, "randint", "low"), as_int(high, "randint", "high")
    count = last - first
    if count <= 0 or count >= 2**63:
        raise ShapeError(f"randint(): no integers, or too many, from {first} up to {last}")
    spec = spec_for(size, dtype or int64, device, "randint")
    bits = spec.like(dtype=int64)
    if count < 2**31:
        out = (draw(bits, "bits", generator) * count) >> 32
    else:
        out = draw(bits, "bits64", generator) % count
    out = out + first if first else out
    return finish(out.to(spec.dtype), requires_grad)


@public(method=False)
def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: DeviceLike = None,
) -> Tensor:
    """`randint` in input's shape, and its dtype and device unless given. Raises as randint does."""
    bounds = (0, low) if high is None else (low, high)
    shape = tuple(input.spec.shape)
    return randint(*bounds, shape, generator=generator, dtype=dtype or input.dtype, device=device or input.device)


@public(method=False)
def randperm(n: int, *, generator: Generator | None = None, dtype: Any = None, device: DeviceLike = None) -> Tensor:
    """A random permutation of 0 to n - 1, int64 unless `dtype`: the argsort of random keys. DTypeError for no int."""
    spec = spec_for((as_int(n, "randperm", "n"),), int64, device, "randperm")
    out = argsort(draw(spec, "bits64", generator))
    return out if dtype is None else out.to(as_dtype(dtype, "randperm"))


@public()
def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability in each element of input (or `p`), else 0; dtype kept. DTypeError unless floating."""
    if p is None:
        floating("bernoulli", input.spec)
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
) -> Tensor:
    """Normal with the given mean and standard deviation: numbers, with `size`; or tensors that broadcast.

    Raises ShapeError for a negative standard deviation, or for two numbers without a size.
    """
    if not hasattr(std, "spec") and std < 0:
        raise ShapeError(f"normal(): std must not be negative, got {std}")
    given = [v for v in (mean, std) if hasattr(v, "spec")]
    if not given:
        if size is None:
            raise ShapeError("normal(): needs a size where mean and std are numbers")
        return randn(size, generator=generator, dtype=dtype, device=device) * std + mean  # type: ignore[no-any-return]
    shape = broadcast_shapes(*[v.spec.shape for v in given], op="normal")
    like = given[0]
    return randn(shape, generator=generator, dtype=like.dtype, device=like.device) * std + mean  # type: ignore[no-any-return]


# --- In-place draws -------------------------------------------------------------------------------------------------


def _named_bounds(op: str, low: Any, high: Any, more: dict[str, Any]) -> tuple[Any, Any]:
    """Bounds, of which PyTorch names one by a word of Python's: `**{"from": 1, "to": 2}`."""
    low, high = more.pop("from", low), more.pop("to", high)
    if more:
        raise TypeError(f"{op}(): unexpected argument {next(iter(more))!r}; it takes from, to and generator")
    return low, high


@method()
def uniform_(
    self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None, **bounds: Any
) -> Tensor:
    """Fills the tensor with numbers uniform in [a, b), which may also be given as `from` and `to`.

    Raises DTypeError unless floating, TypeError for other arguments.
    """
    if bounds:
        a, b = _named_bounds("uniform_", a, b, bounds)
    drawn = _draw_floating("uniform_", "uniform", tuple(self.shape), self.dtype, self.device, generator)
    return self.copy_(drawn if (a, b) == (0.0, 1.0) else drawn * (b - a) + a)


@method()
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor with normal numbers of this mean and standard deviation. Raises as normal does."""
    return self.copy_(normal(mean, std, tuple(self.shape), generator=generator, dtype=self.dtype, device=self.device))


@method()
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor with 1 with probability `p`, a number or a tensor that expands to it, else 0."""
    if hasattr(p, "spec"):
        return self.copy_(bernoulli(p.expand(tuple(self.shape)), generator=generator))
    return self.copy_(bernoulli(self, p, generator=generator))


@method()
def random_(
    self: Tensor, low: int = 0, high: int | None = None, *, generator: Generator | None = None, **bounds: Any
) -> Tensor:
    """Fills the tensor with integers from `low` up to but not including `high`; also given as `from` and `to`.

    Raises ShapeError for an empty range, TypeError for other arguments.
    """
    if bounds:
        low, high = _named_bounds("random_", low, high, bounds)
    if high is None:
        low, high = 0, low or 2**24
    return self.copy_(randint(low, high, tuple(self.shape), generator=generator, device=self.device))
