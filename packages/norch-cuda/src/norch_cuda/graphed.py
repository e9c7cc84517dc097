"""Functions and modules whose work, and that of their gradients, is replayed from graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import norch

from .stream import CUDAGraph, Stream, graph, stream


def _tensors(values: Any) -> list[norch.Tensor]:
    """The tensors in tuples and lists, in order. Raises TypeError for anything else."""
    if isinstance(values, norch.Tensor):
        return [values]
    if not isinstance(values, tuple | list):
        raise TypeError(f"make_graphed_callables(): expected tensors, tuples and lists, got {type(values).__name__}")
    return [tensor for value in values for tensor in _tensors(value)]


def _filled(like: Any, tensors: Any) -> Any:
    """The structure of `like` with the tensors that the iterator has."""
    if isinstance(like, norch.Tensor):
        return next(tensors)
    return type(like)([_filled(value, tensors) for value in like])


class _Recorded:
    """What graphs of a function and of its gradient read and write."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], warmups: int, allow_unused: bool) -> None:
        parameters = getattr(function, "parameters", None)
        self.parameters = tuple(parameters()) if parameters is not None else ()
        self.given = _tensors(args)
        self.inputs = (*self.given, *self.parameters)
        differentiable = [x for x in self.inputs if x.requires_grad]

        def gradients(results: list[norch.Tensor], grads: list[norch.Tensor]) -> Sequence[norch.Tensor | None]:
            if not results or not differentiable:
                return [None] * len(differentiable)
            found: Sequence[norch.Tensor | None] = norch.autograd.grad(
                results, differentiable, grads, retain_graph=True, allow_unused=allow_unused
            )
            return found

        side = Stream()
        side.wait_stream(norch.cuda.current_stream())
        with stream(side):
            for _ in range(warmups):
                results = [x for x in _tensors(function(*args)) if x.requires_grad]
                gradients(results, [norch.ones_like(x) for x in results])
        norch.cuda.synchronize()
        self.forward, self.backward = CUDAGraph(), CUDAGraph()
        with graph(self.forward):
            self.structure = function(*args)
        self.results = _tensors(self.structure)
        self.grads = [norch.empty_like(x) if x.requires_grad else None for x in self.results]
        with graph(self.backward):
            found = iter(
                gradients([x for x in self.results if x.requires_grad], [g for g in self.grads if g is not None])
            )
            self.for_inputs = [next(found) if x.requires_grad else None for x in self.inputs]

    def run(self, *given: norch.Tensor) -> tuple[norch.Tensor, ...]:
        for held, tensor in zip(self.given, given, strict=True):
            if held.data_ptr() != tensor.data_ptr():
                held.detach().copy_(tensor)
        self.forward.replay()
        return tuple([x.detach() for x in self.results])

    def differentiate(self, grads: Sequence[norch.Tensor]) -> tuple[norch.Tensor | None, ...]:
        for parameter, grad in zip(self.parameters, self.for_inputs[len(self.given) :], strict=True):
            if grad is not None and parameter.grad is not None and parameter.grad.data_ptr() == grad.data_ptr():
                parameter.grad = parameter.grad.clone()  # the replay would write there
        for held, grad in zip(self.grads, grads, strict=True):
            if held is not None:
                held.copy_(grad)
        self.backward.replay()
        return tuple([None if x is None else x.detach() for x in self.for_inputs])


def _graphed(recorded: _Recorded) -> Callable[..., Any]:
    count = len(recorded.given)

    class Graphed(norch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: norch.Tensor) -> tuple[norch.Tensor, ...]:
            return recorded.run(*inputs[:count])

        @staticmethod
        @norch.autograd.function.once_differentiable
        def backward(ctx: Any, *grads: norch.Tensor) -> tuple[norch.Tensor | None, ...]:
            return recorded.differentiate(grads)

    def call(*args: Any) -> Any:
        results = Graphed.apply(*_tensors(args), *recorded.parameters)
        return _filled(recorded.structure, iter(results))

    return call


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:
    """Functions or modules whose work, and that of their first gradient, is recorded once and replayed with each call.

    callables: one, or a tuple of them. sample_args: its arguments, a tuple of tensors, also in tuples and lists (for
    several callables a tuple of such tuples); later arguments have their shapes and dtypes, and what requires gradients
    does so there. num_warmup_iters: runs before the recording. allow_unused_input: gradients may be None. pool: taken
    as PyTorch's, ignored: each graph has memory of its own.

    Returns callables; of a module, itself, which runs as it did while `training` is not what it was here. Results and
    gradients lie in the memory of the recording, which the next call writes again. Raises TypeError for arguments or
    results that are no tensors, CaptureError for work that cannot be recorded.
    """
    several = isinstance(callables, tuple)
    made = []
    for function, args in zip(
        callables if several else (callables,), sample_args if several else (sample_args,), strict=True
    ):
        call = _graphed(_Recorded(function, args, num_warmup_iters, allow_unused_input))
        if not hasattr(function, "parameters") or not hasattr(function, "forward"):
            made.append(call)
            continue

        def forward(
            *args: Any, module: Any = function, call: Any = call, plain: Any = function.forward,
            training: bool = function.training,
        ) -> Any:  # fmt: skip
            return call(*args) if module.training == training else plain(*args)

        function.forward = forward
        made.append(function)
    return tuple(made) if several else made[0]
