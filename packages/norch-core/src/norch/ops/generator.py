"""Generators: the seed and the count of draws that random ops are keyed by, and which one of them ops draw from."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from itertools import count
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from ..device import CPU, Device
from ..dispatch.plan import Inferred
from ..dtype import int64, uint8
from ..errors import DTypeError
from ..spec import Spec, as_int
from .families import primitive
from .from_data import frombuffer
from .registry import public

if TYPE_CHECKING:
    from ..tensor import Tensor

_MASK = 2**64 - 1


def _infer_random(spec: Spec, kind: str, seed: type, offset: type) -> Inferred:
    return Inferred((spec,), ((int64, ()), (int64, ())), {"kind": kind})


DRAW = primitive("random", "spec kind seed offset", (), _infer_random, scalars=(2, 3))
draw_keyed = DRAW.call
"""draw_keyed(spec, kind, seed, offset): the draw that a generator in state (seed, offset) makes."""


generators: set[ref[Generator]] = set()
"""All there are."""


@public(method=False)
class Generator:
    """A source of random numbers: a seed, and the count of draws so far. Give it as `generator=` to any random op."""

    def __new__(cls, device: Device | str | None = CPU, *_: Any) -> Self:  # _: of subclasses
        self = super().__new__(cls)
        generators.add(ref(self, generators.discard))
        return self

    def __init__(self, device: Device | str | None = CPU) -> None:
        self.device = CPU if device is None else Device(device)
        self._begin(0, 0)

    def _begin(self, seed: int, offset: int) -> None:
        # Replaced as one, and `count` goes on in one step: threads that draw need no lock.
        self._draws = seed, count(offset)

    def _state(self) -> tuple[int, int]:
        seed, offsets = self._draws
        return seed, int(repr(offsets).removeprefix("count(").removesuffix(")")) & _MASK  # no other way to read it

    def manual_seed(self, seed: int) -> Generator:
        """Starts afresh from `seed`, an int taken modulo 2**64."""
        self._begin(as_int(seed, "manual_seed", "seed") & _MASK, 0)
        return self

    def seed(self) -> int:
        """Starts afresh from a seed that the operating system gives, and returns it."""
        import secrets

        value = secrets.randbits(63)
        self.manual_seed(value)
        return value

    def initial_seed(self) -> int:
        """The seed that it started from."""
        return self._draws[0]

    def get_state(self) -> Tensor:
        """All that decides what comes next: seed and offset as the 16 bytes of a uint8 vector on the CPU."""
        return frombuffer(bytearray(struct.pack("<2Q", *self._state())), dtype=uint8)

    def set_state(self, state: Tensor | tuple[int, int]) -> Generator:
        """Goes back to where `get_state` gave `state`. Also takes the pair (seed, offset).

        Raises DTypeError for anything else.
        """
        spec = getattr(state, "spec", None)
        if spec is not None and spec.dtype is uint8 and spec.shape == (16,):
            state = struct.unpack("<2Q", bytes(state.tolist()))  # type: ignore[union-attr]
        if not (isinstance(state, tuple | list) and len(state) == 2):
            description = f"{spec.dtype} of shape {tuple(spec.shape)}" if spec is not None else f"{state!r:.60}"
            raise DTypeError(f"set_state(): expected the uint8 tensor that get_state() gives, got {description}")
        self._begin(*[as_int(n, "set_state", what) & _MASK for n, what in zip(state, ("seed", "offset"), strict=True)])
        return self

    def __getstate__(self) -> tuple[Device, int, int]:
        return self.device, *self._state()

    def __setstate__(self, state: tuple[Device, int, int]) -> None:
        self.device = state[0]
        self._begin(*state[1:])

    def next(self) -> tuple[int, int]:
        """The seed and offset of the next draw, which is thereby taken."""
        seed, offsets = self._draws
        return seed, next(offsets) & _MASK

    def _operand(self, input: Tensor) -> Tensor:
        """`input` as an op gets it that draws for it, with the numbers of `next`."""
        return input

    def draw(self, spec: Spec, kind: str) -> Tensor:
        """The next draw of the primitive `random` of this `kind`, a tensor of `spec`: its shape, dtype and device."""
        seed, offsets = self._draws
        return draw_keyed(spec, kind, seed, next(offsets) & _MASK)

    def __init_subclass__(cls) -> None:
        if "next" in vars(cls) and "draw" not in vars(cls):  # `draw` is `next` written out, for a call less
            cls.draw = lambda self, spec, kind: draw_keyed(spec, kind, *self.next())  # type: ignore[method-assign]


default_generator = Generator()
chosen_generator: ContextVar[Generator | None] = ContextVar("generator", default=None)


@public(method=False)
class use_generator:
    """In a `with` block, random ops of this thread (or asyncio task) draw from `generator` unless given another.

    It stands for the default generator there, in `manual_seed` and the functions below too. Other threads see nothing
    of it, so that a thread can draw in a fixed order whatever the others do. Raises DTypeError for anything else.
    """

    __slots__ = ("_generator", "_token")

    def __init__(self, generator: Generator) -> None:
        if not isinstance(generator, Generator):
            raise DTypeError(f"use_generator(): expected a Generator, got {type(generator).__name__}")
        self._generator = generator

    def __enter__(self) -> Generator:
        self._token: Token[Generator | None] = chosen_generator.set(self._generator)
        return self._generator

    def __exit__(self, *exception: object) -> None:
        chosen_generator.reset(self._token)


@public(method=False)
def current_generator() -> Generator:
    """What random ops draw from here unless given a generator: the default one, or that of `use_generator`."""
    return chosen_generator.get() or default_generator


def keyed(input: Tensor, generator: Generator | None = None) -> tuple[Tensor, int, int]:
    """What an op that draws for `input` gets: that, and the seed and the offset of its draw."""
    source = generator or current_generator()
    return source._operand(input), *source.next()


@public(method=False)
def manual_seed(seed: int) -> Generator:
    """Seeds the generator that random ops use unless given another, by `int(seed)`. Raises DTypeError for what is no
    number."""
    return current_generator().manual_seed(int(seed) if isinstance(seed, float | str) else seed)


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
    """The default generator's state, a uint8 vector. It serves all devices: there is no other to keep."""
    return current_generator().get_state()


@public(method=False)
def set_rng_state(new_state: Tensor | tuple[int, int]) -> None:
    """Puts the default generator back to `new_state`, a uint8 vector that `get_rng_state` gave."""
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
