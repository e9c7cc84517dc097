"""ZeRO-1: every rank has the whole model, and of the optimiser's state an equal part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import norch
from norch import Tensor
from norch.optim import Optimizer

from ..shard import Layout, Shard, cut_state
from ..world import resolve

BUCKET = 32 << 20
"""Bytes of parameters that are gathered together; a larger one is alone."""

State = dict[str, Any]


class Bucket:
    """Parameters of one dtype and device. `pieces` are this rank's elements of each, which its optimiser steps on."""

    def __init__(self, params: list[Tensor], group: Any, as_view: bool) -> None:
        self.params, self.layout = params, Layout([tuple(p.shape) for p in params], group)
        self.pieces: list[Tensor] = []
        for p, shard in zip(params, self.layout.shards(), strict=True):
            piece = shard.cut(p).detach()
            piece.shard = shard  # type: ignore[attr-defined]
            self.pieces.append(piece.requires_grad_())
        self.views: list[Tensor] | None = None
        if as_view:
            whole = self.layout.whole([p.detach() for p in params])
            self.views = self.layout.split(whole)
            self.whole = whole
            self._point()

    def _point(self) -> None:
        for p, view in zip(self.params, self.views or (), strict=True):
            p.data = view

    def take_gradients(self) -> None:
        """Points the pieces to the parameters as they are now, and to their gradients."""
        for p, piece in zip(self.params, self.pieces, strict=True):
            grad = p.grad if p.grad is None or not p.grad.is_sparse else p.grad.to_dense()
            shard: Shard = piece.shard  # type: ignore[attr-defined]
            piece.data, piece.grad = shard.cut(p), None if grad is None else shard.cut(grad)

    def start_gather(self) -> Callable[[], None]:
        """Begins to collect the pieces of all ranks; the function that is returned ends it."""
        part = self.layout.part([piece.detach() for piece in self.pieces])
        whole, work = self.layout.gather(part, async_op=True)

        def finish() -> None:
            work.wait()
            values = self.layout.split(whole)
            if self.views is not None:
                self.whole.copy_(whole)
                self._point()
            else:
                for p, value in zip(self.params, values, strict=True):
                    p.copy_(value)
            for piece in self.pieces:
                piece.grad = None

        return finish


class ZeroRedundancyOptimizer(Optimizer):
    """An optimiser of class `optimizer_class` that keeps 1 / N of its state on each of N ranks (Rajbhandari et al.,
    2020).

    Gradients are to be the same on all ranks, as DistributedDataParallel leaves them. Each rank steps on its elements
    of every parameter, laid flat, and gets those of the others; the parameters are the same bits on all ranks then, and
    for optimisers that treat each element by itself those of the plain optimiser.

    params: as any optimiser takes them. process_group: the ranks, by default all. parameters_as_bucket_view: whether
    parameters of a bucket of 32 MB lie in one piece of memory, theirs. defaults: options of `optimizer_class`.
    `param_groups`, `zero_grad` and schedulers work as with any optimiser. `state_dict` is that of the plain optimiser,
    on the rank that `consolidate_state_dict` gathered it on; `load_state_dict` takes one on all ranks.
    `norch.distributed.checkpoint` saves every rank's part by itself.

    Raises ValueError for an optimiser that needs whole parameters (its class says `elementwise = False`, as LBFGS,
    SparseAdam), NotImplementedError for `overlap_with_ddp`.
    """

    elementwise = False

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer: overlap_with_ddp is not supported; step after backward")
        if not optimizer_class.elementwise:
            raise ValueError(
                f"ZeroRedundancyOptimizer: {optimizer_class.__name__} looks at more than one element at a time, so "
                "that its state cannot be cut into equal parts"
            )
        self.process_group = resolve(process_group)
        if self.process_group is None:
            raise ValueError("ZeroRedundancyOptimizer: this rank is not in the group")
        self._as_view = parameters_as_bucket_view
        self._class, self._options = optimizer_class, defaults
        self.optim: Optimizer = None  # type: ignore[assignment]  # that of this rank's pieces
        self._buckets: list[list[Bucket]] = []
        """Of each group of parameters."""
        self._consolidated: dict[str, Any] | None = None
        super().__init__(params, defaults)
        self.defaults = self.optim.defaults

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """param_group: such a dict."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            with norch.no_grad():
                buckets = [Bucket(params, self.process_group, self._as_view) for params in _buckets(group["params"])]
            pieces = _in_order(group["params"], buckets)
            ours = {**group, "params": pieces}
            if self.optim is None:
                self.optim = self._class([ours], **self._options)
            else:
                self.optim.add_param_group(ours)
        except BaseException:
            self.param_groups.pop()
            raise
        self.param_groups[-1] = {**self.optim.param_groups[-1], "params": group["params"]}
        self._buckets.append(buckets)

    # --- Steps ------------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Changes the parameters by their gradients. `closure` computes the loss again, and its result is returned."""
        loss = self._evaluate(closure)
        self._share_options()
        buckets = [bucket for of_group in self._buckets for bucket in of_group]
        with norch.no_grad():
            for bucket in buckets:
                bucket.take_gradients()
            self.optim.step(**kwargs)
            under_way: list[Callable[[], None]] = []
            for bucket in buckets:
                under_way.append(bucket.start_gather())
                if len(under_way) > 1:
                    under_way.pop(0)()
            for finish in under_way:
                finish()
        self._consolidated = None
        return loss

    def _share_options(self) -> None:
        """What schedulers and users have set is this rank's optimiser's too."""
        for theirs, ours in zip(self.param_groups, self.optim.param_groups, strict=True):
            ours.update({name: value for name, value in theirs.items() if name != "params"})

    # --- State ------------------------------------------------------------------------------------------------------

    def _pieces(self) -> Iterator[Tensor]:
        """This rank's pieces, in the order of the parameters."""
        for group in self.optim.param_groups:
            yield from group["params"]

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gathers the whole state on the rank `to`, where `state_dict` returns it: all ranks call it."""
        found: dict[int, State] = {}
        index = {id(p): i for i, p in enumerate(self._params())}
        member = self.process_group.ranks.index(to)  # type: ignore[union-attr]
        with norch.no_grad():
            for bucket in (b for of_group in self._buckets for b in of_group):
                states = [self.optim.state.get(piece) or {} for piece in bucket.pieces]
                for i, state in enumerate(states):
                    if state:
                        found[index[id(bucket.params[i])]] = {
                            n: v for n, v in state.items() if not _is_cut(v, bucket, i)
                        }
                names = {n: v for i, s in enumerate(states) for n, v in s.items() if _is_cut(v, bucket, i)}
                for name, like in sorted(names.items()):
                    parts = [s[name] if name in s else norch.zeros(p.shape, dtype=like.dtype, device=like.device)
                             for s, p in zip(states, bucket.pieces, strict=True)]  # fmt: skip
                    whole = bucket.layout.gather_to(bucket.layout.part(parts), member)
                    for param, state, value in zip(bucket.params, states, whole or (), strict=False):
                        if name in state:
                            found[index[id(param)]][name] = value.clone()
        if self.process_group.rank() == member:  # type: ignore[union-attr]
            self._share_options()
            order = {id(piece): i for i, piece in enumerate(self._pieces())}
            groups = [{**g, "params": [order[id(p)] for p in g["params"]]} for g in self.optim.param_groups]
            self._consolidated = {"state": dict(sorted(found.items())), "param_groups": groups}

    def state_dict(self) -> dict[str, Any]:
        """The whole state, on the rank that `consolidate_state_dict` was last called with since the last step.

        Raises RuntimeError elsewhere. `norch.distributed.checkpoint.get_optimizer_state_dict` needs no such rank.
        """
        for hook in self._hooks(self._before, "state_dict"):
            hook(self)
        if self._consolidated is None:
            raise RuntimeError(
                "ZeroRedundancyOptimizer.state_dict(): this rank has a part of the state; call "
                "consolidate_state_dict(to=rank) on all ranks first, and state_dict() on that one"
            )
        found = self._consolidated
        for hook in self._hooks(self._after, "state_dict"):
            changed = hook(self, found)
            found = found if changed is None else changed
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes this rank's part of a whole state, that of the plain optimiser of the same parameters too."""
        for hook in self._hooks(self._before, "load_state_dict"):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        keys = [key for group in state_dict["param_groups"] for key in group["params"]]
        pieces = dict(zip(keys, self._pieces(), strict=False))
        cut = {
            key: cut_state(state, pieces[key].shard)  # type: ignore[attr-defined]
            for key, state in state_dict["state"].items()
            if key in pieces
        }
        self.optim.load_state_dict({**state_dict, "state": cut})
        for theirs, ours in zip(self.optim.param_groups, self.param_groups, strict=True):
            ours.update({name: value for name, value in theirs.items() if name != "params"})
        self._consolidated = None
        for hook in self._hooks(self._after, "load_state_dict"):
            hook(self)


def _is_cut(value: Any, bucket: Bucket, i: int) -> bool:
    """Whether a value of a state has an element for each of the piece."""
    return isinstance(value, Tensor) and value.ndim == 1 and value.shape == bucket.pieces[i].shape


def _buckets(params: list[Tensor]) -> list[list[Tensor]]:
    """Parameters by dtype and device, in runs of at most BUCKET bytes."""
    found: list[list[Tensor]] = []
    last: dict[Any, tuple[list[Tensor] | None, int]] = {}
    for p in {id(p): p for p in params}.values():
        kind, size = (p.dtype, p.device), p.numel() * p.element_size()
        run, so_far = last.get(kind, (None, 0))
        if run is None or so_far + size > BUCKET:
            found.append(run := [])
            so_far = 0
        run.append(p)
        last[kind] = run, so_far + size
    return found


def _in_order(params: list[Tensor], buckets: list[Bucket]) -> list[Tensor]:
    piece_of = {id(p): piece for b in buckets for p, piece in zip(b.params, b.pieces, strict=True)}
    return [piece_of[id(p)] for p in params]
