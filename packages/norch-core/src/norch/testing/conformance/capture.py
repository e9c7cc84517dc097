"""Level 9: captured steps have the bits of eager ones, whether the backend takes part (`program`) or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np

from ... import ops
from ...autograd import grad
from ...device import Device
from ...dtype import float32, int64
from ...errors import MissingDTypeError
from ...tensor import Tensor
from ..samples import SAMPLES, Sample
from ..samples import record as records
from .case import Case, Skipped, rerunning
from .kernels import Without

CALLS = 5
"""One eager, two recorded, two replayed."""


TOGETHER = 48
"""Ops that one step makes: recording a step looks through all objects that there are."""


def cases() -> Iterator[Case]:
    checks = dict(CONTRACT)
    samples = [s for s in SAMPLES.values() if s.gives != "python"]
    for at in range(0, len(samples), TOGETHER):
        some = samples[at : at + TOGETHER]
        checks[f"ops from {some[0].name} to {some[-1].name}"] = _ops(some)
    for name, check in checks.items():
        op = "capture" if name in CONTRACT else "captured ops"
        yield Case(9, op, "-", name, 10, check, rerunning(f"9: {name}"))


CONTRACT: dict[str, Callable[[Device], None]] = {}


def _case(name: str) -> Callable[[Any], Any]:
    def add(check: Any) -> Any:
        CONTRACT[name] = check
        return check

    return add


def bits(value: Any) -> Any:
    """What can be seen of results, floats by their bits."""
    if isinstance(value, Tensor):
        plain = value.detach().cpu().contiguous()
        return plain.dtype.name, tuple(plain.shape), plain.numpy().tobytes() if plain.numel() else b""
    return [bits(part) for part in value] if isinstance(value, tuple | list) else value


def check_captured(make: Callable[[], tuple[Any, Any]], calls: int = CALLS, names: Sequence[str] = ()) -> None:
    """Runs a step as it is and captured. make: gives the step, and `feed(i)`, its arguments in call i.

    What it was called with is overwritten after each call. names: of its results, for the error.
    """
    found: list[list[Any]] = []
    run: Any = None
    for wrap in (lambda step: step, import_module("norch").capture):
        ops.manual_seed(7)
        step, feed = make()
        run, seen = wrap(step), []
        kept: list[Any] = []
        for i in range(calls):
            given = feed(i)
            kept.append(run(*given))
            seen.append(bits(kept[-1]))
            for x in given:
                if isinstance(x, Tensor) and not x.requires_grad:
                    x.fill_(1)
        if not names and bits(kept) != seen:
            raise AssertionError("a later call wrote over an earlier one's results")
        found.append(seen)
    for i, (wanted, got) in enumerate(zip(*found, strict=True)):
        if got != wanted:
            off = [name for name, one, other in zip(names, wanted, got) if one != other]
            what = f"{', '.join(off)}, captured, gave" if off else "it gave"
            raise AssertionError(f"in call {i + 1} {what} other bits than eager:\n{got}\nexpected\n{wanted}"[:2000])
    report = run.report()
    if report.replayed < calls - 3:
        raise AssertionError(f"the step was not replayed:\n{report}")


class One:
    """A call of an op, with its gradients where it has any; `tensors` are its operands."""

    def __init__(self, sample: Sample, device: Device) -> None:
        dtype = float32 if float32 in sample.dtypes else sample.dtypes[-1]
        self.sample = sample
        self.built = records.build(
            sample, sample.cases[0], dtype, device, requires_grad=sample.differentiable and dtype is float32
        )
        self.tensors = list(_tensors((self.built.args, self.built.kwargs)))

    def __call__(self, given: Any) -> list[Tensor]:
        leaves = [g.detach().requires_grad_() if t.requires_grad else g for g, t in zip(given, self.tensors)]
        at = dict(zip(map(id, self.tensors), leaves))
        args, kwargs = _exchanged((self.built.args, self.built.kwargs), at)
        made: list[Any] = [r for r in records.flat(self.sample.function(*args, **kwargs)) if isinstance(r, Tensor)]
        wanted = [r for r in made if r.requires_grad]
        followed = [x for x in leaves if x.requires_grad]
        if wanted and followed:
            made += grad(wanted, followed, [ops.ones_like(r) for r in wanted], materialize_grads=True)
        return [r.detach() for r in made]


def _ops(samples: Sequence[Sample]) -> Callable[[Device], None]:
    def check(device: Device) -> None:
        ones, missing = [], set()
        for sample in samples:
            try:
                one = One(sample, device)
                if not _reads(one, device):
                    ones.append(one)
            except MissingDTypeError as error:
                missing.add(error.dtype)
        if not ones and missing:
            raise Without(min(missing))
        if not ones:
            raise Skipped("all of these ops read values on the host")
        tensors = [t for one in ones for t in one.tensors]

        def step(*given: Any) -> Any:
            rest = iter(given)
            return [one([next(rest) for _ in one.tensors]) for one in ones]

        def feed(i: int) -> Any:
            return [t.detach().clone() for t in tensors]

        check_captured(lambda: (step, feed), names=[one.sample.name for one in ones])

    return check


def _reads(one: One, device: Device) -> bool:
    """Whether the op reads values on the host, or writes into its operands: no part of what is replayed."""
    backend = device.backend
    seen: list[int] = []
    given = [t.detach().clone() for t in one.tensors]
    with ExitStack() as watched:
        for name in ("copy_out", "copy_out_later", "host_view", "copy_in"):
            noting = _noting(getattr(backend, name), seen)
            try:
                watched.enter_context(patch.object(backend, name, noting))
            except AttributeError:
                raise Skipped("the backend's methods cannot be watched") from None
        one(given)
    return bool(seen) or any(t.buffer.modified is not None for t in given)


def _noting(method: Any, seen: list[int]) -> Any:
    def noted(*args: Any) -> Any:
        seen.append(1)
        return method(*args)

    return noted


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of nested arguments."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif type(value) in (list, tuple):
        for part in value:
            yield from _tensors(part)


def _exchanged(value: Any, at: dict[int, Any]) -> Any:
    """Nested arguments with other tensors in the places of known ones."""
    if isinstance(value, Tensor):
        return at[id(value)]
    if isinstance(value, dict):
        return {key: _exchanged(part, at) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)([_exchanged(part, at) for part in value])
    return value


def _drawn(device: Device, i: int, *shape: int) -> Tensor:
    return ops.tensor(np.random.default_rng((9, i)).normal(size=shape).astype(np.float32), device=device)


# --- What a program must do -------------------------------------------------------------------------------------------


@_case("kernels run in their order, on memory of the right time")
def _order(device: Device) -> None:
    def make() -> Any:
        state = ops.ones(4, 3, device=device)

        def step(x: Any) -> Any:
            y = x
            for _ in range(6):
                y = (y * 2 - x).tanh()
                state.add_(y)
                y = y + state.sum(0)
            return y, state.clone(), y.sum()

        return step, lambda i: [_drawn(device, i, 4, 3)]

    check_captured(make, calls=8)


@_case("numbers that change are given to each run")
def _fed(device: Device) -> None:
    def make() -> Any:
        def step(x: Any) -> Any:
            kept = ops.dropout(x, 0.5, training=True)
            return kept, ops.rand(3, device=device), ops.randint(0, 99, (5,), device=device), ops.rand(3, device=device)

        return step, lambda i: [_drawn(device, i, 20)]

    check_captured(make, calls=8)


@_case("each run has its own arguments and results")
def _memory(device: Device) -> None:
    def make() -> Any:
        data = _drawn(device, 0, 90)

        def feed(i: int) -> Any:
            if i % 2:
                return [data[5 * i : 5 * i + 12].clone(), data.clone()[i : i + 12]]
            return [_drawn(device, i, 12), _drawn(device, 50 + i, 24)[::2].contiguous()]

        return lambda x, y: (x * 2 + y, x.sum(), (x * y)[3:]), feed

    check_captured(make, calls=10)


@_case("state, views and layouts")
def _layouts(device: Device) -> None:
    def make() -> Any:
        table = ops.zeros(5, 6, device=device)

        def step(x: Any, index: Any) -> Any:
            table[1:4, ::2].copy_(x.T)
            table.T[1].mul_(2).add_(1)
            picked = table.gather(0, index)
            return picked.T, table.clone()[:, 2], x.T @ x, x.expand(2, 3, 3).sum(0), x.flip(0)

        def feed(i: int) -> Any:
            index = np.random.default_rng(i).integers(0, 5, (2, 6))
            return [_drawn(device, i, 3, 3), ops.tensor(index, dtype=int64, device=device)]

        return step, feed

    check_captured(make, calls=8)


@_case("a model trains")
def _trains(device: Device) -> None:
    def make() -> Any:
        w = [_drawn(device, k, *s).requires_grad_() for k, s in enumerate(((3, 8), (8,), (8, 4)))]
        means, squares = ([ops.zeros_like(p) for p in w] for _ in range(2))

        def step(x: Any, y: Any) -> Any:
            grads: list[Any]
            loss = ops.cross_entropy((x @ w[0] + w[1]).relu() @ w[2], y)
            loss.backward()
            grads = [p.grad for p in w]
            ops.adam_step_(w, grads, means, squares, step=2, lr=0.01)
            for p in w:
                p.grad = None
            return loss.detach(), [p.detach().clone() for p in w]

        def feed(i: int) -> Any:
            labels = np.random.default_rng(i).integers(0, 4, 6)
            return [_drawn(device, i, 6, 3), ops.tensor(labels, device=device)]

        return step, feed

    check_captured(make, calls=9)


@_case("an index out of range is reported, with the line, and the next run is right")
def _fails(device: Device) -> None:
    table = _drawn(device, 0, 5, 2)

    def at(*rows: int) -> Tensor:
        return ops.tensor([[row, row] for row in rows], device=device)

    def step(index: Any) -> Any:
        return (table * 2).gather(0, index) + 1

    run = import_module("norch").capture(step)
    for _ in range(CALLS):
        run(at(0, 4))
    try:
        run(at(0, 9)).cpu()
        device.backend.synchronize(device.index or 0)
    except IndexError:
        pass
    else:
        raise AssertionError("index 9 of a dim of 5 raised nothing in a captured step")
    if bits(run(at(3, 1))) != bits(step(at(3, 1))):
        raise AssertionError("the run after an index out of range is wrong")
