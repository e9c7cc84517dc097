"""norch.fits: what a training step needs of a device's memory, by a dry run on a device that only counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any

from ..autograd.graph import Node
from ..autograd.mode import enable_grad
from ..device import Device, get_default_device
from ..errors import MetaError, NorchError
from ..source_lines import Line, own_files
from ..tensor_base import TensorBase
from .counting import CountingBackend, StandIn, counters, counting, stand_in_for
from .holders import saved_by
from .room import free_memory
from .texts import size_text
from .twins import Twins

STEPS = 2
"""Of each dry run: the second has the optimiser's state beside its activations."""

RUNS = 16
"""The most dry runs that the search for the largest batch makes."""


class FitsError(NorchError, RuntimeError):
    """A model whose memory cannot be told without computing: it reads values, or mixes in what is no copy."""


@dataclass
class Fit:
    """What a training step needs, in bytes, as the device's allocator would count them.

    parameters, buffers, inputs (the example and the targets), gradients, optimizer_state: what there is in the end.
    activations: what the forward pass has made and not given back, at its end; saved: those that the graph keeps for
    the backward pass. peak: the most at any time, and `peak_in` the part of the step when that is. free: what can be
    allocated without what is already there of model, optimiser and example, None where the device does not say.
    batch: elements of the example in `dim`, and largest_batch the most that fit, None where that was not asked or
    cannot be told (`why_no_batch`). elsewhere: by other devices that the step uses, the peak there. A Fit is true if
    the step fits.
    """

    device: str
    parameters: int = 0
    buffers: int = 0
    inputs: int = 0
    gradients: int = 0
    optimizer_state: int = 0
    activations: int = 0
    saved: int = 0
    peak: int = 0
    peak_in: str = ""
    free: int | None = None
    batch: int | None = None
    largest_batch: int | None = None
    why_no_batch: str = ""
    elsewhere: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.free is None or self.peak <= self.free

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __str__(self) -> str:
        size = "" if self.batch is None else f" of a batch of {self.batch:,}"
        rows = [
            ("parameters", self.parameters), ("buffers", self.buffers), ("inputs", self.inputs),
            ("gradients", self.gradients), ("optimiser state", self.optimizer_state),
            ("activations", self.activations), ("  saved for backward", self.saved),
        ]  # fmt: skip
        lines = [f"A training step{size} on {self.device}:"]
        lines += [f"  {name:<20}  {size_text(nbytes):>11}" for name, nbytes in rows if nbytes]
        lines.append(f"  {'peak':<20}  {size_text(self.peak):>11}  in the {self.peak_in}")
        lines += [
            f"  {f'peak on {name}':<20}  {size_text(n):>11}" for name, n in self.elsewhere.items() if n >= 1 << 20
        ]
        if self.free is not None:
            lines.append(f"It {'fits' if self else 'does not fit'}: {size_text(self.free)} are there for it.")
        if self.largest_batch is not None:
            lines.append(f"The largest batch that fits: {self.largest_batch:,}")
        elif self.why_no_batch:
            lines.append(f"The largest batch cannot be told: {self.why_no_batch}")
        return "\n".join(lines)

    __repr__ = __str__


def fits(
    model: Any,
    example: Any,
    optimizer: Any = None,
    *,
    loss: Callable[..., Any] | None = None,
    targets: Any = (),
    device: Device | str | None = None,
    memory: int | None = None,
    dim: int = 0,
    largest_batch: bool = True,
) -> Fit:
    """Whether a training step fits into a device's memory, and what of it goes where, without running it.

    The step runs on a copy of the model that has shapes and no bytes: forward, loss, backward, the optimiser's step,
    twice, in a loop that names the output and the loss, on a device that counts what would be allocated. Nothing is
    changed: no parameter, gradient, state, buffer or random number; nor is memory of the model's size needed, so that a
    model too large to be there can be made within `with norch.device("meta")`.

    example: what the model is called with: a tensor, a tuple of arguments, or a dict of named ones. optimizer: one of
    the model, or a function of its parameters that makes one (`norch.optim.Adam`); None for no step. loss: a function
    of the output, and of `targets` where there are any; by default the output's only tensor without dims, or else the
    sum of its floating tensors. device: where the step is to run, by default where the model is; the default device for
    a model on "meta". memory: the bytes that there are for it, by default those that are free there and those that
    model, optimiser and example have already. largest_batch: whether to search for the most elements in `dim` of the
    example, and of what has as many there, that fit: a few more such runs.

    What kernels take while they run is counted where the backend tells it. Raises FitsError, naming the line, where the
    model's Python asks for a value (`item()`, `if x.sum() > 0`), since that computes none; TypeError for a model
    without parameters().
    """
    if not callable(getattr(model, "parameters", None)):
        raise TypeError(f"fits(): the model must be a Module, got {type(model).__name__}")
    if isinstance(get_default_device(), StandIn):
        raise FitsError("fits(): it was called within a dry run of its own")
    first = next(iter(model.parameters()), None)
    home = Device(device) if device is not None else get_default_device() if first is None else first.device
    if home.is_meta:
        home = get_default_device()
    if home.is_meta:
        raise FitsError("fits(): the model is on 'meta', and so is the default device; say where it is to run: device=")
    given = _Step(model, example, optimizer, loss, targets, None if device is None else home, home, dim)
    with counting():
        found = given.run(None)
        room = memory
        if room is None:
            free = free_memory(home)
            room = None if free is None else free + given.there
        found.free = room
        if largest_batch:
            if room is None:
                found.why_no_batch = f"{home} does not say how much memory is free; give it as memory="
            elif found.batch is None:
                found.why_no_batch = f"the example has no tensor with a dim {dim}"
            else:
                _search(given, found, room)
    return found


def _search(given: _Step, found: Fit, room: int) -> None:
    """The largest batch, between one that fits and one that does not, by lines through what is known of both."""
    assert found.batch is not None
    known: dict[int, float] = {0: 0.0, found.batch: found.peak}

    def probe(size: int) -> None:
        try:
            known[size] = given.run(size).peak
        except (NorchError, ValueError) as error:
            if len(known) == 2:
                raise FitsError(str(error).splitlines()[0]) from error
            known[size] = inf  # more elements than anything can hold

    try:
        probe(found.batch * 2)
    except FitsError as error:
        found.why_no_batch = f"another batch raises {error}"
        return
    for run in range(RUNS):
        low = max([size for size, peak in known.items() if peak <= room])
        above = [size for size, peak in known.items() if peak > room]
        high = min(above) if above else 0
        if high and high - low <= max(1, low >> 10):
            break
        below = sorted(size for size in known if size <= low)[-2:] if not high else [low, high]
        slope = (known[below[-1]] - known[below[0]]) / (below[-1] - below[0]) if len(below) > 1 else 0.0
        guess = int(low + (room - known[low]) / slope) if 0 < slope < inf else low * 64
        if not high:
            probe(min(max(guess, low + 1), low * 1024))
        elif run % 3 == 2 or not low < guess < high:  # so that a curve costs a few runs more and no more than that
            probe((low + high) // 2)
        else:
            probe(guess)
    found.largest_batch = max([size for size, peak in known.items() if peak <= room])


class _Step:
    """What `fits` was given. there: the bytes that it has on the device now."""

    def __init__(
        self, model: Any, example: Any, optimizer: Any, loss: Any, targets: Any, device: Device | None, home: Device,
        dim: int,
    ) -> None:  # fmt: skip
        self.model, self.example, self.optimizer, self.loss = model, example, optimizer, loss
        self.targets = targets if isinstance(targets, tuple) else (targets,)
        self.device, self.home, self.dim = device, home, dim
        self.there = 0
        sizes = [t.shape[dim] for t in _tensors(example) if t.ndim > dim]
        self.batch = sizes[0] if sizes else None

    def run(self, batch: int | None) -> Fit:
        """A dry run, with another number of elements in `dim`. Raises FitsError for what it cannot tell."""
        try:
            with enable_grad():
                return self._run(batch)
        except (MetaError, NorchError) as error:
            if isinstance(error, FitsError):
                raise
            raise FitsError(_explained(error)) from error

    def _run(self, batch: int | None) -> Fit:
        twins = Twins(self.device, self.home)
        counter = stand_in_for(self.home).backend
        assert isinstance(counter, CountingBackend)
        start = counter.used
        for other in counters().values():
            other.peak = other.used
        change = None if batch is None or self.batch is None else (self.dim, self.batch, batch)
        to_make = self.optimizer is None or not hasattr(self.optimizer, "step") or isinstance(self.optimizer, type)
        try:
            model, optimizer = twins.copies((self.model, None if to_make else self.optimizer))
        except (TypeError, NotImplementedError) as error:
            raise FitsError(f"fits(): the model's structure cannot be copied: {error}") from error
        params = list(model.parameters())
        fit = Fit(str(self.home), batch=self.batch if batch is None else batch)
        fit.parameters = _bytes(counter, params)
        fit.buffers = _bytes(counter, model.buffers(), params)
        if to_make and self.optimizer is not None:
            optimizer = self.optimizer(params)
        base = counter.used
        example = twins.example(self.example, change)
        targets = twins.example(self.targets, change)
        loss = twins.function(self.loss, change)
        args, kwargs = ((), example) if isinstance(example, dict) else (example, {})
        args = tuple(args) if isinstance(args, tuple | list) else (args,)
        fit.inputs = counter.used - base
        self.there = twins.real
        known = {id(t.buffer) for t in twins.values() if isinstance(t, TensorBase)}
        peaks: dict[str, int] = {}

        def phase(name: str) -> None:
            peaks[name] = max(peaks.get(name, 0), counter.peak - start)
            counter.peak = counter.used

        counter.peak = counter.used
        for step in range(STEPS):
            for param in params:
                param.grad = None
            before = counter.used
            output = model(*args, **kwargs)
            value = _loss_of(output) if loss is None else loss(output, *targets)
            if value.spec.numel != 1:
                raise FitsError(f"fits(): the loss must have one element, it has shape {tuple(value.shape)}")
            phase("forward pass")
            if not step:  # later ones begin with the last one's output
                fit.activations = counter.used - before
                fit.saved = _saved_bytes(counter, value, known)
            value.backward()
            phase("backward pass")
            fit.gradients = _bytes(counter, [p.grad for p in params if p.grad is not None])
            if optimizer is not None:
                optimizer.step()
                phase("optimiser's step")
                fit.optimizer_state = _bytes(counter, _tensors(getattr(optimizer, "state", {})), params)
        others = {name: other.peak for name, other in counters().items() if other is not counter}
        fit.elsewhere = {name: peak for name, peak in others.items() if peak}
        fit.peak_in, fit.peak = max(peaks.items(), key=lambda item: item[1])
        return fit


def _loss_of(output: Any) -> Any:
    """The output's only tensor without dims, or the sum of its floating tensors."""
    found = [t for t in _tensors(output) if t.is_floating_point()]
    scalars = [t for t in found if not t.ndim and t.requires_grad]
    if len(scalars) == 1:
        return scalars[0]
    found = [t for t in found if t.requires_grad]
    if not found:
        raise FitsError("fits(): no floating tensor of the model's output depends on its parameters; give a loss=")
    total = found[0].sum()
    for tensor in found[1:]:
        total = total + tensor.sum()
    return total


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors in tuples, lists, dicts and plain objects such as the outputs of models."""
    if isinstance(value, TensorBase):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)
    elif hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        yield from _tensors(vars(value))


def _bytes(counter: CountingBackend, tensors: Any, without: Any = ()) -> int:
    """What the buffers of tensors take, each counted once."""
    skipped = {id(t.buffer) for t in without}
    buffers = {id(t.buffer): t.buffer for t in tensors if id(t.buffer) not in skipped}
    return sum(b.size for b in buffers.values() if getattr(b, "counter", None) is counter)


def _saved_bytes(counter: CountingBackend, value: Any, known: set[int]) -> int:
    """What the graph of `value` keeps, but for what is there anyway."""
    kept: dict[int, Any] = {}
    seen: set[Node] = {value.node}
    stack = [value.node]
    while stack:
        node = stack.pop()
        for buffer, _, _ in saved_by(node):
            if id(buffer) not in known:
                kept[id(buffer)] = buffer
        for edge in node.edges:
            if edge is not None and edge not in seen:
                seen.add(edge)
                stack.append(edge)
    return sum(b.size for b in kept.values() if getattr(b, "counter", None) is counter)


def _explained(error: NorchError) -> str:
    """Why a dry run has no answer, and the line that asked for what it has not."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if not own_files[trace.tb_frame.f_code.co_filename]:
            line = Line(trace.tb_frame.f_code, trace.tb_lasti)
        trace = trace.tb_next
    where = f" at {line}" + (f" ({line.text()})" if line.text() else "") if line is not None else ""
    if isinstance(error, MetaError):
        return (
            f"fits(): {error.op}(){where} reads values, by which the step may go one way or another; a dry run has "
            "shapes and no values, so that what the step needs cannot be told without running it"
        )
    return f"fits(): the dry run raised {type(error).__name__}{where}: {error}"
