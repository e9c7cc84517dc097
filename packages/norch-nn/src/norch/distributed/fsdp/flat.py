"""The parameters of one block and dtype: a shard of each here, all of them gathered while the block computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import ref

import norch
from norch import Tensor, nn

from .. import collectives
from ..process_group import Work
from ..reduce_op import ReduceOp
from ..shard import Layout
from .policy import MixedPrecisionPolicy

Places = list[tuple[nn.Module, str]]
"""The modules and attributes by which a parameter is known; several where it is shared."""


class Flat:
    """`params` are the parameters that the user has, from now on shards; `fulls` stand in their places in the modules
    while `whole`, which all shards make, is here. In between a full parameter is a tensor of the meta device."""

    def __init__(
        self, params: list[nn.Parameter], places: list[Places], group: Any, policy: MixedPrecisionPolicy
    ) -> None:
        self.params, self.places, self.group, self.policy = params, places, group, policy
        self.layout = Layout([tuple(p.shape) for p in params], group)
        self.pending: tuple[Tensor, Any] | None = None
        self.whole: Tensor | None = None
        self.held: list[Tensor | None] = [None] * len(params)
        """Gradients of backward passes that were not reduced."""
        self.views: list[tuple[ref[Tensor], tuple[int, ...], tuple[int, ...], int]] = []
        """Views of parameters that the graph saved: what, and where in `whole`."""
        self.absent = [norch.empty(p.shape, dtype=p.dtype, device="meta") for p in params]
        self.fulls = [nn.Parameter(a, p.requires_grad) for a, p in zip(self.absent, params, strict=True)]
        whole = [p.detach() for p in params]
        for p, shard in zip(params, self.layout.shards(), strict=True):
            p.shard, p.grad = shard, None  # type: ignore[attr-defined]
        self.take_over(whole)

    # --- Parameters -------------------------------------------------------------------------------------------------

    def take_over(self, tensors: list[Tensor]) -> None:
        """Makes the shards of rank 0's tensors."""
        with norch.no_grad():
            whole = self.layout.whole(tensors)
            if not whole.is_meta:
                collectives.broadcast(whole, group=self.group, group_src=0)
            for p, tensor in zip(self.params, self.layout.split(whole), strict=True):
                p.data = p.shard.cut(tensor).clone().to(p.dtype)  # type: ignore[attr-defined]

    def start_gather(self) -> None:
        if self.pending is None and self.whole is None:
            with norch.no_grad():
                part = self.layout.part([p.detach() for p in self.params])
                if self.policy.param_dtype is not None:
                    part = part.to(self.policy.param_dtype)
                self.pending = self.layout.gather(part, async_op=True)

    def gather(self) -> None:
        """Puts the full parameters into the modules."""
        if self.whole is not None:
            return
        self.start_gather()
        whole, work = self.pending  # type: ignore[misc]
        self.pending = None
        with (
            norch.autograd._unsafe_preserve_version_counter(whole),
            norch.no_grad(),
        ):  # values that were saved come back
            work.wait()
            values = self.layout.split(whole)
        for p, full, value in zip(self.params, self.fulls, values, strict=True):
            full.data = value
            if full.requires_grad != p.requires_grad:
                full.requires_grad_(p.requires_grad)
        self.whole = whole
        self._place(self.fulls)

    def free(self) -> None:
        """Puts the shards back into the modules, and lets go of what was gathered."""
        if self.pending is not None:
            self.pending[1].wait()
            self.pending = None
        if self.whole is not None:
            self.whole = None
            for full, absent in zip(self.fulls, self.absent, strict=True):
                full.data = absent
            self._place(self.params)

    def _place(self, tensors: Iterable[Tensor]) -> None:
        for places, tensor in zip(self.places, tensors, strict=True):
            for module, name in places:
                module.__dict__[name] = tensor

    def take_views(self, saved: Iterable[Tensor]) -> None:
        """Makes what the graph saved of full parameters let go of their memory too, until the backward pass."""
        own = {id(full) for full in self.fulls}
        for tensor in saved:
            if tensor.buffer is self.whole.buffer and id(tensor) not in own:  # type: ignore[union-attr]
                self.views.append((ref(tensor), tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()))
                tensor.data = norch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

    def restore_views(self) -> None:
        """Gives those their memory again."""
        with norch.no_grad():
            for view, shape, strides, offset in self.views:
                tensor = view()
                if tensor is not None and self.whole is not None:
                    tensor.data = norch.as_strided(self.whole, shape, strides, offset)
        self.views = []

    # --- Gradients --------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Keeps the gradients of a backward pass that are not to be reduced yet."""
        dtype = self.policy.reduce_dtype
        for i, full in enumerate(self.fulls):
            grad, full.grad = full.grad, None
            if grad is not None:
                grad = grad if dtype is None else grad.to(dtype)
                held = self.held[i]
                self.held[i] = grad if held is None else held + grad

    def start_reduce(self) -> tuple[Work, Callable[[], None]] | None:
        """Begins to average the gradients over the ranks; None for none. The function is to put them into the
        shards when that is done."""
        self.hold()
        known = next((g for g in self.held if g is not None), None)
        if known is None:
            return None
        grads = [
            g if g is not None else norch.zeros(n, dtype=known.dtype, device=known.device)
            for g, n in zip(self.held, self.layout.counts, strict=True)
        ]
        self.held = [None] * len(grads)
        whole = self.layout.whole(grads)
        part = norch.empty(self.layout.length, dtype=whole.dtype, device=whole.device)
        work = collectives.reduce_scatter_tensor(part, whole, ReduceOp.AVG, self.group, async_op=True)

        def finish() -> None:
            for p, grad in zip(self.params, self.layout.split_part(part), strict=True):
                if p.requires_grad:
                    grad = grad.detach().to(p.dtype)
                    if p.grad is None:
                        p.grad = grad
                    else:
                        p.grad.add_(grad)

        return work, finish  # type: ignore[return-value]

    def forget(self) -> None:
        """Drops the gradients of a backward pass that failed."""
        self.held = [None] * len(self.held)
        for full in self.fulls:
            full.grad = None
