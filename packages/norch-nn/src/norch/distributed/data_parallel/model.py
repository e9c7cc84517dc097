"""DistributedDataParallel: each process computes the gradients of its part of a batch, and all get their average."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import norch
import norch.distributed as dist
from norch.nn import Module
from norch.utils._pytree import tree_leaves, tree_map

from .buckets import MB, GradBucket
from .reducer import Reducer
from .replicas import broadcast_all, check_same
from .uneven import Uneven

FIRST_MB = 1.0
"""Size of the first bucket, which is ready soonest."""

CPU_MB, DEVICE_MB = 4.0, 25.0
"""Size of the others where no bucket_cap_mb is given: in pieces of over a few MB MPI is slower; 25 is PyTorch's."""


class DistributedDataParallel(Module):
    """`module`, trained by all processes of a group together: gradients become their average over the processes.

    Gradients are brought together in buckets, while the backward pass goes on with what comes before. All processes
    begin with the parameters and buffers of rank 0. State dict keys begin with "module.", as PyTorch's.

    device_ids: the one device of this process, to which inputs are moved; None for modules on the CPU.
    forward_sync_buffers: whether the buffers become those of rank 0 before each forward pass; broadcast_buffers=False
        leaves them apart from the beginning.
    process_group: among whom; all processes by default.
    bucket_cap_mb: the size of buckets; by default 4 MB on the CPU and 25 MB elsewhere.
    find_unused_parameters: parameters may get no gradient in a step; one that gets none in any process keeps its own.
    gradient_as_bucket_view: gradients lie in the same memory in each step.
    static_graph: the same parameters get gradients in each step, each as often: as the first step shows.
    init_sync: whether to begin with what rank 0 has, after a check that all processes have the same model.

    Raises DistributedError naming the parameter where the model is not the same everywhere, RuntimeError where nothing
    requires a gradient, and at the second forward pass where a parameter got no gradient, unless
    `find_unused_parameters`; ValueError before `init_process_group`, and for device_ids of a module on the CPU.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Any = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        for name, value in {
            "delay_all_reduce_named_params": delay_all_reduce_named_params,
            "mixed_precision": mixed_precision,
            "device_mesh": device_mesh,
            "bucket_cap_mb_list": bucket_cap_mb_list,
        }.items():
            if value is not None:
                raise NotImplementedError(f"DistributedDataParallel: there is no {name}")
        if not isinstance(module, Module):
            raise norch.DTypeError(f"DistributedDataParallel: {type(module).__name__} is not a Module subclass")
        self.module, self.dim = module, dim
        self.device_ids: list[Any] | None = None
        self.process_group = dist.group.WORLD if process_group is None else process_group
        if not isinstance(self.process_group, dist.ProcessGroup):
            raise ValueError(
                "Default process group has not been initialized, please make sure to call init_process_group."
                if process_group is None
                else f"DistributedDataParallel: this process is no member of process_group {process_group!r}"
            )
        begin_alike = broadcast_buffers is not False
        self.broadcast_buffers = begin_alike if forward_sync_buffers is None else forward_sync_buffers
        self.find_unused_parameters, self.gradient_as_bucket_view = find_unused_parameters, gradient_as_bucket_view
        self.static_graph = False
        self.uneven: Uneven | None = None
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self.parameters_to_ignore = ignored
        named = [(n, p) for n, p in module.named_parameters() if n not in ignored]
        trained = [(n, p) for n, p in named if p.requires_grad]
        if not trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters that require a "
                "gradient."
            )
        for name, p in named:
            if isinstance(p, norch.nn.UninitializedParameter):
                raise RuntimeError(
                    f"DistributedDataParallel: parameter {name!r} has no shape yet; run a forward pass before"
                )
        kinds = {p.device.type for _, p in named}
        if len(kinds) > 1:
            raise ValueError(f"DistributedDataParallel: the parameters are on {' and '.join(sorted(kinds))}")
        self.device_type = kinds.pop()
        self.device = trained[0][1].device
        self._place(device_ids, output_device)
        self._buffer_count = len(self._synced_buffers())
        cap = bucket_cap_mb or (CPU_MB if self.device_type == "cpu" else DEVICE_MB)
        self.bucket_bytes_cap = int(cap * MB)
        if init_sync:
            check_same(trained, self.process_group, "DistributedDataParallel")
            buffers = self._synced_buffers() if begin_alike else []
            broadcast_all([*[p for _, p in named], *buffers], self.process_group)
        first = self.bucket_bytes_cap if bucket_cap_mb else int(FIRST_MB * MB)
        self.bucket_caps = first, self.bucket_bytes_cap
        self._reduce(trained)
        if static_graph:
            self._set_static_graph()

    def _place(self, device_ids: Any, output_device: Any) -> None:
        if not device_ids:
            if output_device is not None:
                raise ValueError("DistributedDataParallel: output_device is for modules that have device_ids")
            return
        if len(device_ids) > 1:
            raise ValueError(
                f"DistributedDataParallel: device_ids {list(device_ids)} are several; each process has one device"
            )
        if self.device_type == "cpu":
            raise ValueError(
                f"DistributedDataParallel: device_ids {list(device_ids)} are for modules on a GPU, the parameters of "
                "this one are on cpu; leave device_ids out"
            )
        self.device_ids = list(device_ids)

    def _synced_buffers(self) -> list[norch.Tensor]:
        return [b for n, b in self.module.named_buffers() if n not in self.parameters_to_ignore]

    def _reduce(self, trained: Sequence[tuple[str, norch.Tensor]]) -> None:
        unused, keep = self.find_unused_parameters, self.gradient_as_bucket_view
        self.reducer = Reducer(trained, self.process_group, self.bucket_caps, unused, keep)

    # --- Passes -----------------------------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """`module(*inputs, **kwargs)`; the gradients of the backward pass after it will be averaged."""
        inputs, kwargs = self._pre_forward(inputs, kwargs)
        return self._post_forward(self.module(*inputs, **kwargs))

    def _pre_forward(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        source = 0
        if self.uneven is not None:
            self.uneven.tell(True)
            source = self.uneven.source
        if norch.is_grad_enabled() and self.require_backward_grad_sync:
            self.reducer.prepare()
        if self.will_sync_module_buffers():
            broadcast_all(self._synced_buffers(), self.process_group, source)
        if self.device_ids is not None:
            device = self.device
            inputs, kwargs = tree_map(
                lambda x: x.to(device) if isinstance(x, norch.Tensor) else x, (tuple(inputs), dict(kwargs))
            )
        return inputs, kwargs

    def _post_forward(self, output: Any) -> Any:
        if not norch.is_grad_enabled():
            self.require_forward_param_sync = False
            return output
        self.require_forward_param_sync = self.require_backward_grad_sync
        self.reducer.expecting = self.require_backward_grad_sync
        if self.find_unused_parameters and self.require_backward_grad_sync:
            for found in tree_leaves(output):  # where not one parameter is used, only this can say that the pass ran
                if isinstance(found, norch.Tensor) and found.requires_grad:
                    found.register_hook(self._begin)
        return output

    def _begin(self, grad: norch.Tensor) -> None:
        if self.reducer.expecting:
            self.reducer.begin()

    def will_sync_module_buffers(self) -> bool:
        """Whether the next forward pass begins with the buffers of rank 0."""
        return self.require_forward_param_sync and self.broadcast_buffers and self._buffer_count > 0

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of forward passes inside of it stay those of this process, and add up until one outside of it."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """Processes may have different numbers of batches inside of it: those that are through wait for the others.

        Gradients are averaged over all processes, or over those that have a batch. In the end all have the model of one
        that had the most. With `throw_on_early_termination` all raise RuntimeError as soon as one has no batch.
        """
        if not enable or self.process_group.size() == 1:
            yield
            return
        self.uneven = Uneven(self, not divide_by_initial_world_size, throw_on_early_termination)
        try:
            yield
            self.uneven.follow()
        finally:
            self.uneven.end()
            self.uneven = None

    # --- How gradients are brought together -------------------------------------------------------------------------

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Has `hook(state, bucket)` bring the gradients in `bucket.buffer()` together; it returns a Future of them.

        Those of norch.distributed.algorithms.ddp_comm_hooks.default_hooks are such. RuntimeError for a second one.
        """
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self.reducer.hook = lambda bucket: hook(state, bucket)

    def _set_static_graph(self) -> None:
        self.static_graph = self.reducer.static = True

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        sizes = [bucket.numel * bucket.parameters()[0].dtype.itemsize for bucket in self.reducer.buckets]
        return {
            "world_size": self.process_group.size(),
            "rank": self.process_group.rank(),
            "module_name": type(self.module).__name__,
            "bucket_cap_bytes": self.bucket_bytes_cap,
            "bucket_sizes": ", ".join(map(str, sizes)),
            "backend_name": self.process_group.name(),
            "find_unused_parameters": self.find_unused_parameters,
            "gradient_as_bucket_view": self.gradient_as_bucket_view,
            "static_graph": self.static_graph,
        }

    # --- Copies -----------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        own = ("process_group", "reducer", "uneven")
        return {name: value for name, value in super().__getstate__().items() if name not in own}

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        self.uneven = None
        group = dist.group.WORLD
        if group is None:
            return
        self.process_group = group
        ignored = self.parameters_to_ignore
        trained = [(n, p) for n, p in self.module.named_parameters() if p.requires_grad and n not in ignored]
        self._reduce(trained)
        self.reducer.static = self.static_graph
