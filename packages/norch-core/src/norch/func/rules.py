"""How an op runs on batched tensors: by the rule of its family, else through its parts, else in a loop over samples.

A rule is `rule(op, level, args)`: of the arguments, those of `level` are given as they are in memory, samples along dim
0, by `front` or `values`. It returns results laid out so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from ..dispatch.op import Op
from ..ops.copying import write
from ..ops.shape.joining import stack
from ..tensor import Tensor
from ..tensor_base import TensorBase
from .batched import Batched, BatchedSpec, Level, VmapError, batched, depth_of, find_rule, physical
from .randomness import draw_batched

Rule = Callable[[Op, Level, tuple[Any, ...]], Any]

RULES: dict[str, Rule] = {}
"""By the name of an op."""


def rule(names: str) -> Callable[[Rule], Rule]:
    """Makes a function the rule of these ops."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names.split(), function))
        return function

    return register


def is_at(x: Any, level: Level) -> bool:
    return isinstance(x, Batched) and x.level is level


front = physical
"""All samples of an operand along dim 0; one that is the same for all is expanded."""


def values(args: tuple[Any, ...], level: Level) -> list[Any]:
    """The arguments as they are in memory."""
    return [a.value if is_at(a, level) else a for a in args]


def fronts(op: Op, level: Level, args: tuple[Any, ...]) -> list[Any]:
    """The arguments, all tensor operands with their samples along dim 0."""
    return [front(a, level) if i in op.tensors and isinstance(a, Tensor) else a for i, a in enumerate(args)]


def _innermost(op: Op, args: tuple[Any, ...]) -> Level:
    given = [*args[0], *args] if op.variadic else args
    found = [a.level for a in given if isinstance(a, Batched | BatchedSpec)]
    if not found:
        raise VmapError(f"vmap(): {op.name} cannot be mapped")
    return max(found, key=lambda level: level.depth)


def run(op: Op, args: tuple[Any, ...]) -> Any:
    """The result of `op` on arguments of which some are batched."""
    level = _innermost(op, args)
    known = RULES.get(op.name)
    if known is None and op.decompose is not None:
        return op.decompose(*args)
    found = (known or _loop)(op, level, args)
    if isinstance(found, tuple):
        return tuple([x if x is None else batched(level, x) for x in found])
    return None if found is None else batched(level, found)


_warned: set[str] = set()


def one_by_one(name: str, function: Callable[..., Any], level: Level, args: tuple[Any, ...]) -> Any:
    """`function` of each sample, stacked; the first time for each name with a warning."""
    if name not in _warned:
        _warned.add(name)
        warnings.warn(
            f"vmap(): {name} has no batching rule: it runs once for each of the {level.size} samples", stacklevel=2
        )

    def sample(a: Any, i: int) -> Any:
        if isinstance(a, list | tuple):
            return type(a)([sample(part, i) for part in a])
        return a.value.select(0, i) if is_at(a, level) else a

    results = [function(*[sample(a, i) for a in args]) for i in range(level.size)]
    if isinstance(results[0], tuple):
        return tuple([stack(list(column)) for column in zip(*results, strict=True)])
    return stack(results)


def _loop(op: Op, level: Level, args: tuple[Any, ...]) -> Any:
    return one_by_one(op.name, op.call, level, args)


class MapInfo(NamedTuple):
    """What `Function.vmap` is told of the vmap that it is within."""

    batch_size: int
    randomness: str


def apply_function(function: Any, args: tuple[Any, ...]) -> Any:
    """`Function.apply` where an argument is batched: by its own `vmap(info, in_dims, *args)`, which returns the results
    and their dims; where it works on batches of matrices, on one more; else a sample at a time."""
    level = max((a.level for a in args if isinstance(a, Batched)), key=lambda level: level.depth)
    if hasattr(function, "vmap"):
        in_dims = tuple([0 if is_at(a, level) else None for a in args])
        found, dims = function.vmap(MapInfo(level.size, level.randomness), in_dims, *values(args, level))
        several = isinstance(found, tuple)
        results = found if several else (found,)
        places = dims if isinstance(dims, tuple) else (dims,) * len(results)
        out = tuple([x if d is None else batched(level, x.movedim(d, 0)) for x, d in zip(results, places, strict=True)])
        return out if several else out[0]
    if getattr(function, "over_batches", False):
        found = function.apply(*[front(a, level) if isinstance(a, Tensor) else a for a in args])
    else:
        found = one_by_one(function.__name__, function.apply, level, args)
    return tuple([batched(level, x) for x in found]) if isinstance(found, tuple) else batched(level, found)


Batched.apply_function = staticmethod(apply_function)


# --- Results written into memory ------------------------------------------------------------------------------------


def into(op: Op, out: Any, args: tuple[Any, ...]) -> None:
    """`op`, its result written into the memory of `out`."""
    innermost = max([depth_of(a) for a in args if isinstance(a, TensorBase)], default=-1)
    if not isinstance(out, Batched) or innermost > out.level.depth:
        hash(next(a.spec for a in args if isinstance(a, Batched)))  # raises
    level = out.level
    if op.name == "random":
        out.write(draw_batched(out.spec, *args[1:]))
    elif op.name == "fill":
        op.into(out.value, out.value.spec, *args[1:])
    elif op.name in ("scatter", "scatter_add"):
        index, source, dim = args
        op.into(out.value, front(index, level), front(source, level).contiguous(), dim + 1)
    else:
        write(out.value, front(op.call(*args), level))


find_rule.update(run=run, into=into)
