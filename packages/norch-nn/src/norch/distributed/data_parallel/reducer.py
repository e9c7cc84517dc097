"""What brings the gradients of all processes together while the backward pass goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import norch
import norch.distributed as dist
from norch.optim.multi_tensor import late

from .buckets import GradBucket, assign, last_part


class Reducer:
    """Averages gradients over the processes of a group, bucket by bucket, each as soon as its gradients are known.

    A round begins with the first gradient after `prepare` and ends with the backward pass in which the last one comes.
    Buckets are reduced in the same order everywhere. unused: parameters may get no gradient; those that get none in any
    process keep what they have. static: which get one, and how often, is as in the first round, for ever. keep: buckets
    are always the same memory.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, norch.Tensor]],
        group: dist.ProcessGroup,
        caps: tuple[float, float],
        unused: bool,
        keep: bool,
    ) -> None:
        self.names, self.parameters = [name for name, _ in named], [p for _, p in named]
        self.group, self.caps, self.unused, self.keep = group, caps, unused, keep
        self.static = False
        self.hook: Callable[[GradBucket], Any] | None = None
        self.weight: Callable[[], float] | None = None
        """By what sums are divided, where it is not the size of the group."""
        self.expecting = False
        """Whether gradients are to be reduced: as the last forward pass says."""
        self.running = self.queued = False
        self.expected = [1] * len(named)
        """How often each parameter gets a gradient in a round."""
        self.used: list[bool] | None = None
        """Which parameters get a gradient in some process, where only some do."""
        self.arrived: list[int] = []
        self.rebuilt = self.learnt = False
        self.left: list[int] = []
        self.counts: list[int] = []
        self.flags: Any = None
        self.next = 0
        self.polls: deque[Callable[[], bool]] = deque()
        self.buckets: list[GradBucket] = []
        self.tail: dict[int, int] = {}
        """What optimisers are told of the parameters whose gradients come last."""
        self._assign(range(len(named) - 1, -1, -1))
        self.handles = [
            p.register_post_accumulate_grad_hook(partial(self._arrive, number))
            for number, p in enumerate(self.parameters)
        ]

    def _assign(self, order: Sequence[int]) -> None:
        found = assign(self.parameters, order, *self.caps)
        if [bucket.numbers for bucket in found] == [bucket.numbers for bucket in self.buckets]:
            return
        self.buckets = found
        self.tail = {}
        if self.parameters[0].device.type != "cpu":
            self.tail = {id(p): i for i, bucket in enumerate(last_part(found), 1) for p in bucket.parameters()}
        self.bucket_of = {number: bucket for bucket in self.buckets for number in bucket.numbers}

    @property
    def learning(self) -> bool:
        """Whether this round shows what the graph, which will not change, is like."""
        return self.static and not self.learnt

    # --- A round ----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """To be called at a forward pass whose gradients will be reduced.

        Raises RuntimeError where the round before has not ended, naming the parameters that got no gradient.
        """
        if self.running:
            raise RuntimeError(self._missing())
        if not self.rebuilt and self.arrived and not (self.unused or self.static):
            self._rebuild()
        self.expecting = True

    def begin(self) -> None:
        """Starts a round, if none is under way, which ends with the backward pass that is running."""
        if not self.running:
            self.running, self.next = True, 0
            self.left = [1] * len(self.parameters) if self.learning else list(self.expected)
            self.counts = [0] * len(self.parameters)
            for bucket in self.buckets:
                bucket.waiting = sum(self.left[n] > 0 for n in bucket.numbers)
        if not self.queued:
            norch.autograd.queue_callback(self._end_of_pass)
            self.queued = True

    def _arrive(self, number: int, parameter: norch.Tensor) -> None:
        """Notes a gradient, and starts the reductions that waited for it alone."""
        if not self.expecting:
            return
        if not self.queued or not self.running:
            self.begin()
        self.counts[number] += 1
        if self.learning:
            return
        left = self.left[number] = self.left[number] - 1
        bucket = self.bucket_of[number]
        if left == 0:
            if not self.rebuilt:
                self.arrived.append(number)
            bucket.waiting -= 1
            if not bucket.waiting:
                self._launch()
        elif left < 0 and bucket.index() < self.next:
            raise RuntimeError(
                f"DistributedDataParallel: parameter {self.names[number]!r} got a gradient after its gradients were "
                "reduced. It is used in several checkpointed parts, or the forward pass is run again inside of the "
                "backward pass; if the graph is the same in every step, pass static_graph=True"
            )
        polls = self.polls
        if polls and polls[0]():  # which lets engines make progress that have no thread for it
            polls.popleft()

    @property
    def in_place(self) -> bool:
        """Whether large gradients are reduced where they lie."""
        if self.hook is not None or self.keep:
            return False
        return self.group.comm(self.parameters[0].device.type).reduces_together

    def _launch(self) -> None:
        """Starts the reductions of the buckets that are ready."""
        buckets = self.buckets
        with norch.no_grad():
            while self.next < len(buckets) and not buckets[self.next].waiting:
                bucket = buckets[self.next]
                bucket.fill(self.keep, self.in_place)
                self.next += 1
                self._reduce(bucket)

    def _reduce(self, bucket: GradBucket) -> None:
        if self.hook is not None:
            bucket.pending = self.hook(bucket)
            self.polls.append(bucket.pending.done)
            return
        op, pieces = dist.ReduceOp.AVG, bucket.pieces
        if self.weight is not None:
            op = dist.ReduceOp.SUM
            for piece in pieces:
                piece.div_(self.weight())
        if len(pieces) == 1:
            work = dist.all_reduce(pieces[0], op, self.group, async_op=True)
        else:
            work = dist.all_reduce_coalesced(pieces, op, self.group, async_op=True)
        assert work is not None
        bucket.pending = work
        self.polls.append(work.is_completed)

    def _end_of_pass(self) -> None:
        self.queued = False
        if not self.running:
            return
        whole = self.unused or self.learning
        if whole:
            for bucket in self.buckets:
                bucket.waiting = 0
            self._launch()
        if self.next < len(self.buckets):
            return  # another pass may bring the others
        with norch.no_grad():
            self._finish(self._agree_on_used() if whole else self.used)
        if self.learning:
            self.expected, self.learnt = self.counts, True
        self.running = False

    def _agree_on_used(self) -> list[bool] | None:
        """Which parameters have a gradient in some process; None for all of them."""
        mine = [p.grad is not None for p in self.parameters]
        flags = norch.tensor(mine, dtype=norch.int32, device=self._flags_device())
        work = dist.all_reduce(flags, dist.ReduceOp.MAX, self.group, async_op=True)
        assert work is not None
        if all(mine) and not self.learning:  # what is used here is used somewhere
            self.flags = work
            return None
        work.wait()
        used = [bool(flag) for flag in flags.tolist()]
        if self.learning:
            self.used = used
        return used

    def _finish(self, used: Sequence[bool] | None) -> None:
        self.polls.clear()
        for bucket in self.buckets:
            pending, bucket.pending = bucket.pending, None
            if self.hook is not None:
                values = pending.wait()
                bucket.set_buffer(values[0] if isinstance(values, list | tuple) else values)
            elif self.keep:  # others may know that memory by its address
                pending.wait()
            else:
                pending.wait_late()
            bucket.hand_out(used, self.keep)
        if self.flags is not None:
            self.flags.wait()
            self.flags = None
        if self.hook is None and not self.keep:
            late.update(self.tail)

    def follow(self) -> None:
        """A round of the others, in which this process has no batch: it adds zeros, and keeps its gradients."""
        with norch.no_grad():
            for bucket in self.buckets:
                bucket.clear(self.in_place)
                self._reduce(bucket)
            if self.unused:
                none = norch.zeros(len(self.parameters), dtype=norch.int32, device=self._flags_device())
                dist.all_reduce(none, dist.ReduceOp.MAX, self.group)
            self._finish([False] * len(self.parameters))

    def _flags_device(self) -> str:
        return "cpu" if "cpu" in self.group.engines else str(self.parameters[0].device)

    # --- Between rounds ---------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """Puts the buckets into the order in which gradients came in the first process."""
        self.rebuilt = True
        order = self.arrived if len(self.arrived) == len(self.parameters) else range(len(self.parameters) - 1, -1, -1)
        numbers = norch.tensor(list(order), dtype=norch.int64, device=self._flags_device())
        dist.broadcast(numbers, group=self.group, group_src=0)
        self.arrived = []
        self._assign(numbers.tolist())

    def _missing(self) -> str:
        absent = [i for i, left in enumerate(self.left) if left > 0]
        names = ", ".join(self.names[i] for i in absent[:20]) + (", ..." if len(absent) > 20 else "")
        return (
            "Expected to have finished reduction in the prior iteration before starting a new one. This error "
            "indicates that your module has parameters that were not used in producing loss. Pass "
            "find_unused_parameters=True to DistributedDataParallel, and make sure that all outputs of forward take "
            f"part in calculating the loss.\nParameters which did not receive grad for rank {self.group.global_rank}: "
            f"{names}\nParameter indices which did not receive grad for rank {self.group.global_rank}: "
            f"{' '.join(map(str, absent))}"
        )

    def remove_hooks(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles = []
