"""When the parameters of a block are gathered, freed and reduced: hooks of its forward and backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

import norch
from norch import Tensor, nn
from norch.utils._pytree import tree_leaves, tree_map

from ..process_group import Work
from .flat import Flat
from .policy import MixedPrecisionPolicy


class Schedule:
    """What the blocks of a model have in common: in which order they come, and what is under way."""

    def __init__(self, root: State) -> None:
        self.root = root
        self.states = [root]
        self.order: list[State] = []
        """The blocks of this forward pass, and of the one before it."""
        self.before: list[State] = []
        self.in_backward = False
        self.reductions: list[tuple[Work, Callable[[], None]]] = []

    def begin(self) -> None:
        """A forward pass of the root begins: what an earlier pass left, that was cut short, is dropped."""
        if self.in_backward:
            try:
                norch.autograd.queue_callback(self.finish)
            except norch.AutogradError:  # no backward pass is running: it raised
                self.in_backward = False
                for work, _ in self.reductions:  # its memory is written to until then
                    work.wait()
                self.reductions.clear()
                for state in self.states:
                    state.forget()
            else:
                return
        for state in self.states:
            if state.reshard_after_backward:
                state.reshard()
        self.before, self.order = self.order, []

    def enter_backward(self) -> None:
        self.in_backward = True
        norch.autograd.queue_callback(self.finish)

    def finish(self) -> None:
        """The backward pass is over."""
        if self.in_backward:
            for state in self.states:
                state.post_backward()
            self.settle(0)
            self.in_backward = False

    def settle(self, left: int) -> None:
        """Waits for reductions until so many are under way."""
        while len(self.reductions) > left:
            work, finish = self.reductions.pop(0)
            work.wait()
            finish()

    def neighbour(self, state: State, order: list[State], by: int) -> list[State]:
        """The block that comes `by` places after it."""
        at = max((i for i, s in enumerate(order) if s is state), default=-2) + by
        return [order[at]] if 0 <= at < len(order) else []


class _Gate(norch.autograd.Function):
    """Tensors as they are. Its backward pass comes when all ops behind it have had theirs."""

    @staticmethod
    def forward(ctx: Any, state: State, *tensors: Tensor) -> Any:
        ctx.state = state
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.state.post_backward()
        return (None, *grads)


class State:
    """A block: a module whose parameters, but for those of blocks in it, are gathered and freed together."""

    def __init__(
        self, module: nn.Module, flats: list[Flat], policy: MixedPrecisionPolicy, reshard: bool | None
    ) -> None:
        self.module, self.flats, self.policy = module, flats, policy
        self.reshard_after_forward = reshard
        self.reshard_after_backward = True
        self.sync = True
        self.forward_prefetch: list[State] | None = None
        self.backward_prefetch: list[State] | None = None
        self.resident = False
        self.gate = 0
        """The sequence number from which on nodes of the graph are this call's."""
        self.versions: list[int] | None = None
        self.schedule = Schedule(self)
        module.register_forward_pre_hook(self.pre_forward, prepend=True, with_kwargs=True)
        module.register_forward_hook(self.post_forward, always_call=True)

    # --- Parameters -------------------------------------------------------------------------------------------------

    def prefetch(self) -> None:
        if not self.resident:
            for flat in self.flats:
                flat.start_gather()

    def unshard(self) -> None:
        self.prefetch()
        for flat in self.flats:
            flat.gather()
        self.resident = True

    def reshard(self) -> None:
        for flat in self.flats:
            flat.free()
        self.resident = False

    def forget(self) -> None:
        for flat in self.flats:
            flat.forget()

    # --- Forward ----------------------------------------------------------------------------------------------------

    def pre_forward(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        schedule, recording = self.schedule, norch.is_grad_enabled()
        if schedule.root is self:
            schedule.begin()
        self.unshard()
        if not schedule.in_backward:
            schedule.order.append(self)
            ahead = self.forward_prefetch
            for other in schedule.neighbour(self, schedule.before, 1) if ahead is None else ahead:
                other.prefetch()
        dtype = self.policy.param_dtype
        if dtype is not None and self.policy.cast_forward_inputs:
            args, kwargs = tree_map(lambda v: _cast(v, dtype), (args, kwargs))
        self.gate = 0
        if recording:
            places = [v for v in tree_leaves((args, kwargs)) if isinstance(v, Tensor) and v.requires_grad]
            if places:
                passed = iter(_Gate.apply(self, *places))
                args, kwargs = tree_map(
                    lambda v: next(passed) if isinstance(v, Tensor) and v.requires_grad else v, (args, kwargs)
                )
                first = next(v for v in tree_leaves((args, kwargs)) if isinstance(v, Tensor) and v.requires_grad)
                self.gate = first.grad_fn.sequence_number  # type: ignore[union-attr]
            self.versions = self._versions()
        return args, kwargs

    def post_forward(self, module: nn.Module, args: Any, output: Any) -> Any:
        """`output` is None where the forward pass raised."""
        if self.policy.output_dtype is not None:
            output = tree_map(lambda v: _cast(v, self.policy.output_dtype), output)
        results = [v for v in _tensors(output) if v.requires_grad]
        if norch.is_grad_enabled():
            for result in results:
                result.register_hook(self.pre_backward)
        root = self.schedule.root is self
        reshard = not root if self.reshard_after_forward is None else self.reshard_after_forward
        if not self.schedule.in_backward and (reshard or not results):
            if results:
                own = {id(v) for v in _tensors(output)}
                saved = [v for v in saved_tensors(results, self.gate) if id(v) not in own]
                for flat in self.flats:
                    flat.take_views(saved)
            self.reshard()
        return output

    # --- Backward ---------------------------------------------------------------------------------------------------

    def pre_backward(self, grad: Tensor) -> None:
        """The gradient of a result is known: the backward pass of the block begins."""
        schedule = self.schedule
        schedule.enter_backward()
        if self.versions is not None and self.versions != self._versions():
            raise norch.AutogradError(
                f"backward(): parameters of the {type(self.module).__name__} that fully_shard was given have changed "
                "since its forward pass; call backward() before the optimizer's step"
            )
        self.unshard()
        for flat in self.flats:
            flat.restore_views()
        behind = self.backward_prefetch
        for other in schedule.neighbour(self, schedule.order, -1) if behind is None else behind:
            other.prefetch()

    def post_backward(self) -> None:
        """All gradients of this call of the block are known, or the whole backward pass is over."""
        for flat in self.flats:
            if not self.sync:
                flat.hold()
                continue
            begun = flat.start_reduce()
            if begun is not None:
                self.schedule.reductions.append(begun)
        if self.reshard_after_backward:
            self.reshard()
        self.schedule.settle(1)

    def _versions(self) -> list[int]:
        return [p._version for flat in self.flats for p in flat.params if p.numel()]


def _cast(value: Any, dtype: Any) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def _tensors(value: Any) -> list[Tensor]:
    """The tensors in containers, and in the attributes of dataclasses."""
    found: list[Tensor] = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif is_dataclass(leaf):
            found += _tensors(vars(leaf))
    return found


def saved_tensors(results: list[Tensor], since: int) -> Iterator[Tensor]:
    """The tensors that the nodes behind `results` have saved, back to the one with that sequence number."""
    stack: list[Any] = [r.grad_fn for r in results]
    seen: set[Any] = set()
    while stack:
        node = stack.pop()
        if node is None or node in seen or node.sequence_number < since:
            continue
        seen.add(node)
        stack += node.edges
        context = getattr(node, "context", None)
        for value in (*(node.saved_inputs or ()), *(() if context is None else context._saved)):
            for one in value if isinstance(value, tuple | list) else (value,):
                if isinstance(one, Tensor):
                    yield one
