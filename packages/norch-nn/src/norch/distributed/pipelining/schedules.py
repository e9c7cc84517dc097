"""In which order a stage passes the microbatches of a step forward and backward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import norch
from norch import Tensor

from ..point_to_point import P2POp, batch_isend_irecv
from .stage import PipelineStage

FORWARD, BACKWARD = "F", "B"


class _Schedule(ABC):
    """stage: this process's. n_microbatches: into how many pieces a batch is cut, along dim 0, which they divide.

    loss_fn: of an output and its target, in the last stage; without it, in any stage, there is no backward pass. All
    stages are given one. scale_grads: loss_fn is a mean, so gradients are divided by n_microbatches, and are those of
    the whole batch.
    """

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        *,
        scale_grads: bool = True,
    ) -> None:
        if n_microbatches < 1:
            raise ValueError(f"{type(self).__name__}: n_microbatches must be at least 1, got {n_microbatches}")
        self.stage, self.n_microbatches, self.loss_fn, self.scale_grads = stage, n_microbatches, loss_fn, scale_grads

    @abstractmethod
    def order(self) -> list[tuple[str, int]]:
        """FORWARD or BACKWARD, and of which microbatch."""

    def step(
        self,
        *args: Any,
        target: Tensor | None = None,
        losses: list[Tensor] | None = None,
        return_outputs: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Passes a batch through the pipeline, forward and backward; gradients are added to those that there are.

        args: the whole batch, in the first stage. target: in the last, whose `losses` become those of the microbatches.
        kwargs: for this stage's submodule. Tensors among all these are cut. Returns the outputs in the last stage.
        return_outputs: whether. Raises RuntimeError where gradients are off.
        """
        if self.loss_fn is None:
            return self.eval(*args, target=target, losses=losses, **kwargs)
        if not norch.is_grad_enabled():
            raise RuntimeError(f"{type(self).__name__}.step() needs gradients; under no_grad call eval()")
        return self._run(self.order(), args, kwargs, target, losses, return_outputs)

    def eval(self, *args: Any, target: Tensor | None = None, losses: list[Tensor] | None = None, **kwargs: Any) -> Any:
        """Passes a batch through the pipeline forward alone, with no gradients. target, losses: as of `step`.

        Returns the outputs (n, ...) in the last stage.
        """
        with norch.no_grad():
            return self._run([(FORWARD, m) for m in range(self.n_microbatches)], args, kwargs, target, losses, True)

    def _run(
        self,
        order: Sequence[tuple[str, int]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Tensor | None,
        losses: list[Tensor] | None,
        return_outputs: bool,
    ) -> Any:
        stage, count = self.stage, self.n_microbatches
        keep = any(what == BACKWARD for what, _ in order)
        stage.held.clear()
        inputs = [self._pieces(arg) for arg in args]
        named = {name: self._pieces(value) for name, value in kwargs.items()}
        targets = self._pieces(target)
        made: dict[int, Tensor] = {}
        results: list[tuple[Tensor, ...]] = []
        found: list[Tensor] = []
        outgoing: list[P2POp] = []
        for what, m in order:
            # What the last action made is sent together with what the next one needs: neighbours that each wait for
            # the other's receipt would stand still.
            incoming = stage.receive_forward(m == 0) if what == FORWARD else stage.receive_backward(m)
            _exchange([*outgoing, *incoming])
            sync = m == count - 1
            if what == BACKWARD:
                outgoing = stage.send_backward(stage.backward(m, made.pop(m, None), sync))
                continue
            pieces = tuple(piece[m] for piece in inputs)
            outputs = stage.forward(m, pieces, {name: piece[m] for name, piece in named.items()}, keep, sync)
            outgoing = stage.send_forward(outputs, m == 0)
            if stage.is_last:
                if self.loss_fn is not None and target is not None:
                    loss = self.loss_fn(outputs[0] if len(outputs) == 1 else outputs, targets[m])
                    made[m] = loss / count if self.scale_grads else loss
                    found.append(loss.detach())
                if keep and m not in made:
                    raise ValueError(f"{type(self).__name__}.step(): the last stage needs a target")
                if return_outputs:
                    results.append(tuple(out.detach() for out in outputs))
        _exchange(outgoing)
        if losses is not None:
            losses[:] = found
        if not results:
            return None
        joined = tuple(norch.cat(parts) for parts in zip(*results, strict=True))
        return joined[0] if len(joined) == 1 else joined

    def _pieces(self, value: Any) -> Sequence[Any]:
        n = self.n_microbatches
        if not isinstance(value, Tensor):
            return [value] * n
        if value.ndim == 0 or value.shape[0] % n:
            raise norch.ShapeError(
                f"{type(self).__name__}: dim 0 of {tuple(value.shape)} cannot be cut into {n} microbatches"
            )
        return value.chunk(n)


def _exchange(ops: list[P2POp]) -> None:
    if ops:
        for work in batch_isend_irecv(ops):
            work.wait()


class ScheduleGPipe(_Schedule):
    """All microbatches forward, then all backward (Huang et al., 2019): each stage holds all of them in between."""

    def order(self) -> list[tuple[str, int]]:
        count = range(self.n_microbatches)
        return [(FORWARD, m) for m in count] + [(BACKWARD, m) for m in count]


class Schedule1F1B(_Schedule):
    """One forward, one backward (Narayanan et al., 2019, 2021): a stage holds no more microbatches than there are
    stages from it to the last, and stands still no longer than in GPipe."""

    def order(self) -> list[tuple[str, int]]:
        n = self.n_microbatches
        ahead = min(n, self.stage.num_stages - self.stage.stage_index)
        steps = [(FORWARD, m) for m in range(ahead)]
        for m in range(n):
            steps.append((BACKWARD, m))
            if ahead + m < n:
                steps.append((FORWARD, ahead + m))
        return steps
