"""What random ops do inside `vmap`: raise, draw for each sample, or draw once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ops.generator import Generator
from ..ops.random import draw_keyed
from ..spec import Spec
from ..tensor import Tensor
from .batched import BatchedSpec, Level, VmapError, batched, lift, physical

MODES = ("error", "different", "same")


def refuse() -> None:
    raise VmapError(
        "vmap(): a random op, for which norch does not know whether samples should differ; pass "
        "randomness='different' or randomness='same' to vmap"
    )


class MappedGenerator(Generator):
    """What random ops draw from inside a vmap: as its `randomness` says."""

    def __init__(self, source: Generator, level: Level) -> None:
        self.device, self._source, self._level = source.device, source, level

    def next(self) -> tuple[int, int]:
        if self._level.randomness == "error":
            refuse()
        return self._source.next()

    def _operand(self, input: Tensor) -> Tensor:
        level, given = self._level, self._source._operand(input)
        return lift(physical(given, level), (level,)) if level.randomness == "different" else given

    def draw(self, spec: Spec, kind: str) -> Tensor:
        """One draw for each sample where they are to differ."""
        level = self._level
        if level.randomness == "error":
            refuse()
        if level.randomness == "same":
            return self._source.draw(spec, kind)
        return batched(level, self._source.draw(Spec((level.size, *spec.shape), None, spec.dtype, spec.device), kind))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def repeats(generator: Generator) -> Callable[[], Any]:
    """What lets the generator, which may be of a vmap around, draw again what it draws from now on."""
    while isinstance(generator, MappedGenerator):
        generator = generator._source
    state = generator.get_state()
    return lambda: generator.set_state(state)


def draw_batched(spec: BatchedSpec, kind: str, seed: int, offset: int) -> Tensor:
    """The random op of a spec that is a sample's."""
    if any(level.randomness == "error" for level in spec.levels):
        refuse()
    levels = tuple([level for level in spec.levels if level.randomness == "different"])
    shape = (*[level.size for level in levels], *spec.shape)
    return lift(draw_keyed(Spec(shape, None, spec.dtype, spec.device), kind, seed, offset), levels)
