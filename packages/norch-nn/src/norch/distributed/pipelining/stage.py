"""One stage of a pipeline: what it computes of a microbatch, and what it sends to its neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import norch
from norch import Tensor, nn

from ..point_to_point import P2POp, irecv, isend, recv, send
from ..world import get_rank, get_world_size

HEADER = 64
"""Numbers by which a stage says what its activations are: how many, and of each dtype, ndim and shape."""

_DTYPES = tuple(
    getattr(norch, name) for name in "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()
)


class PipelineStage:
    """Stage `stage_index` of `num_stages`, whose process is member `stage_index` of `group` (all processes by default).

    submodule: takes what the stage before returns, a tensor or a tuple of them; it is moved to `device`. Shapes and
    dtypes are told by the stage before with the first microbatch of each step; where `input_args` or `output_args` are
    given (tensors of a microbatch), they are compared with these.

    `held` has what the backward pass of each microbatch on its way needs. Raises ValueError unless this process is that
    member of a group of as many.
    """

    def __init__(
        self,
        submodule: nn.Module,
        stage_index: int,
        num_stages: int,
        device: Any,
        input_args: Any = None,
        output_args: Any = None,
        group: Any = None,
    ) -> None:
        if get_world_size(group) != num_stages or get_rank(group) != stage_index:
            raise ValueError(
                f"PipelineStage: stage {stage_index} of {num_stages} cannot be member {get_rank(group)} of a group of "
                f"{get_world_size(group)}: each stage is a process, in order"
            )
        self.submodule, self.device, self.group = submodule.to(device), norch.device(device), group
        self.stage_index, self.num_stages = stage_index, num_stages
        self.is_first, self.is_last = stage_index == 0, stage_index == num_stages - 1
        self._given = {"input": _tuple(input_args), "output": _tuple(output_args)}
        self.held: dict[int, tuple[tuple[Any, ...], tuple[Tensor, ...]]] = {}
        self._incoming: tuple[Tensor, ...] = ()
        self._specs: list[tuple[tuple[int, ...], Any]] = []

    # --- What it exchanges ------------------------------------------------------------------------------------------

    def receive_forward(self, first: bool) -> list[P2POp]:
        """The receipts of a microbatch's activations, which `forward` then takes."""
        if self.is_first:
            return []
        if first:
            header = norch.empty(HEADER, dtype=norch.int64, device=self.device)
            recv(header, group=self.group, group_src=self.stage_index - 1)
            self._specs = _read(header)
            self._check("input", self._specs)
        self._incoming = tuple(norch.empty(shape, dtype=dtype, device=self.device) for shape, dtype in self._specs)
        return [self._op(irecv, tensor, -1) for tensor in self._incoming]

    def send_forward(self, outputs: Sequence[Tensor], first: bool) -> list[P2POp]:
        """Sends `outputs`, of shapes that a header tells, to the next stage. Raises ValueError for too many."""
        if self.is_last:
            return []
        if first:
            specs = [(tuple(out.shape), out.dtype) for out in outputs]
            self._check("output", specs)
            send(_header(specs, self.device), group=self.group, group_dst=self.stage_index + 1)
        return [self._op(isend, out.detach(), 1) for out in outputs]

    def receive_backward(self, microbatch: int) -> list[P2POp]:
        """The receipts of a microbatch's gradients, which `backward` then takes."""
        if self.is_last:
            return []
        outputs = self.held[microbatch][1]
        self._incoming = tuple(norch.empty_like(out) for out in outputs if out.dtype.is_floating_point)
        return [self._op(irecv, tensor, 1) for tensor in self._incoming]

    def send_backward(self, grads: Sequence[Tensor]) -> list[P2POp]:
        """Sends `grads`, in the shapes of what was received, to the stage before."""
        return [self._op(isend, grad, -1) for grad in grads]

    def _op(self, op: Any, tensor: Tensor, step: int) -> P2POp:
        return P2POp(op, tensor, group=self.group, group_peer=self.stage_index + step)

    def _check(self, what: str, found: list[tuple[tuple[int, ...], Any]]) -> None:
        given = self._given[what]
        if given is None:
            return
        expected = [(tuple(tensor.shape), tensor.dtype) for tensor in given]
        if found != expected:
            raise norch.ShapeError(f"PipelineStage: {what} of stage {self.stage_index} is {found}, not {expected}")

    # --- What it computes -------------------------------------------------------------------------------------------

    def forward(
        self, microbatch: int, args: tuple[Any, ...], kwargs: Mapping[str, Any], keep: bool, sync: bool
    ) -> tuple[Tensor, ...]:
        """What the submodule makes of `args` in the first stage, of what was received in others. keep: for backward.
        sync: as of `backward`. Raises TypeError unless it returns tensors.

        kwargs: given to it too.
        """
        inputs = args if self.is_first else self._incoming
        if keep and not self.is_first:
            inputs = tuple(t.requires_grad_() if t.dtype.is_floating_point else t for t in inputs)
        with self._synchronised(sync):
            outputs = _tuple(self.submodule(*inputs, **kwargs))
        if outputs is None or not all(isinstance(out, Tensor) for out in outputs):
            raise TypeError(f"PipelineStage: stage {self.stage_index} must return a tensor or a tuple of tensors")
        if keep:
            self.held[microbatch] = inputs, outputs
        return outputs

    def backward(self, microbatch: int, loss: Tensor | None, sync: bool) -> list[Tensor]:
        """The gradients of a microbatch's inputs, out of its loss in the last stage, of what was received in others.

        sync: whether gradients are reduced after it, where the submodule is replicated.
        """
        inputs, outputs = self.held.pop(microbatch)
        with self._synchronised(sync):
            if loss is not None:
                loss.backward()
            else:
                floats = [out for out in outputs if out.dtype.is_floating_point]
                pairs = [(o, g) for o, g in zip(floats, self._incoming, strict=True) if o.requires_grad]
                if pairs:
                    norch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        if self.is_first:
            return []
        floats = [tensor for tensor in inputs if tensor.dtype.is_floating_point]
        return [norch.zeros_like(t) if t.grad is None else t.grad for t in floats]

    def _synchronised(self, sync: bool) -> AbstractContextManager[Any]:
        """DistributedDataParallel reduces gradients with the last microbatch alone."""
        no_sync = getattr(self.submodule, "no_sync", None)
        return nullcontext() if sync or no_sync is None else no_sync()


def _tuple(value: Any) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value) if isinstance(value, tuple | list) else (value,)


def _header(specs: Sequence[tuple[tuple[int, ...], Any]], device: Any) -> Tensor:
    numbers = [len(specs)]
    for shape, dtype in specs:
        numbers += [_DTYPES.index(dtype), len(shape), *shape]
    if len(numbers) > HEADER:
        raise ValueError(f"PipelineStage: {len(specs)} tensors between two stages are too many")
    return norch.tensor(numbers + [0] * (HEADER - len(numbers)), dtype=norch.int64, device=device)


def _read(header: Tensor) -> list[tuple[tuple[int, ...], Any]]:
    count, *numbers = header.tolist()
    specs = []
    for _ in range(count):
        dtype, ndim, *rest = numbers
        specs.append((tuple(rest[:ndim]), _DTYPES[dtype]))
        numbers = rest[ndim:]
    return specs
