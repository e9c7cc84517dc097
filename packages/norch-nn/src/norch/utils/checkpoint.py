"""Activation checkpointing: a part of a model is computed again in the backward pass instead of kept for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import norch

__getattr__ = norch.late_submodules(__name__)

__all__ = ["checkpoint", "checkpoint_sequential", "get_device_states", "set_device_states"]


class _Again(norch.autograd.Function):
    """`anchor` requires grad, so that a part whose inputs do not is recorded for what its parameters need."""

    @staticmethod
    def forward(ctx: Any, anchor: norch.Tensor, call: Callable[..., Any], keep_rng: bool, *args: Any) -> Any:
        ctx.call, ctx.random = call, norch.get_rng_state() if keep_rng else None
        ctx.autocast = norch.keep_autocast()
        ctx.args = [None if isinstance(a, norch.Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, norch.Tensor)]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        result = call(*args)
        ctx.returns_tensor = not isinstance(result, tuple)
        for value in (result,) if ctx.returns_tensor else result:
            if isinstance(value, list | dict):
                raise norch.DTypeError(
                    f"checkpoint(): the function must return a tensor or a tuple, not a {type(value).__name__}"
                )
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if norch.is_grad_enabled():
            raise norch.AutogradError("checkpoint(): create_graph=True is not supported: what runs again is not kept")
        args = list(ctx.args)
        wanted = [ctx.needs_input_grad[3 + i] for i in ctx.places]
        for place, saved, needed in zip(ctx.places, ctx.saved_tensors, wanted, strict=True):
            args[place] = saved.detach().requires_grad_(needed)
        with norch.random.fork_rng(), norch.enable_grad(), ctx.autocast:
            if ctx.random is not None:
                norch.set_rng_state(ctx.random)
            result = ctx.call(*args)
        results = (result,) if ctx.returns_tensor else result
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None and r.requires_grad]
        if pairs:
            norch.autograd.backward([r for r, _ in pairs], [g for _, g in pairs])
        found = [a.grad if isinstance(a, norch.Tensor) else None for a in args]
        return (None, None, None, *found)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which nothing but the arguments is kept: the backward pass computes it again
    (Chen et al., 2016).

    It returns a tensor or a tuple. With `preserve_rng_state` both times draw the same random numbers, and both run
    under the same autocast. Tensors get gradients where they are positional arguments or leaves (parameters), these in
    their `.grad`: `autograd.grad` does not see leaves in the function. `use_reentrant` makes no difference. Raises
    TypeError for PyTorch's `context_fn`, `determinism_check` and `debug`, AutogradError for a backward pass with
    `create_graph`.
    """
    for name in ("context_fn", "determinism_check", "debug", "early_stop"):
        if name in kwargs:
            raise TypeError(f"checkpoint(): {name} is not supported")
    if not norch.is_grad_enabled():
        return function(*args, **kwargs)
    anchor = norch.zeros((), requires_grad=True)
    return _Again.apply(anchor, lambda *a: function(*a, **kwargs), preserve_rng_state, *args)


def checkpoint_sequential(
    functions: Sequence[Callable[..., Any]],
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """`checkpoint` of each of `segments` parts of a chain of functions (a `Sequential`); the last part is kept.

    Raises ValueError for fewer functions than segments.
    """
    chain = list(functions)
    if not 1 <= segments <= len(chain):
        raise ValueError(f"checkpoint_sequential(): {segments} segments of {len(chain)} functions")
    size = len(chain) // segments

    def part(start: int, stop: int) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            for function in chain[start:stop]:
                value = function(value)
            return value

        return run

    for i in range(segments - 1):
        input = checkpoint(part(i * size, (i + 1) * size), input, use_reentrant=use_reentrant, **kwargs)
    return part((segments - 1) * size, len(chain))(input)


def get_device_states(*args: Any) -> tuple[list[int], list[norch.Tensor]]:
    """The indices of the devices beside the CPU that tensors among `args` are on, and for each the state of random
    numbers, a uint8 vector; norch has one for all devices."""
    found = {a.get_device(): None for a in args if isinstance(a, norch.Tensor) and a.device.type != "cpu"}
    return list(found), [norch.get_rng_state() for _ in found]


def set_device_states(devices: Sequence[int], states: Sequence[norch.Tensor]) -> None:
    """Sets the `states` of random numbers of `devices`, as `get_device_states` gave them."""
    for _, state in zip(devices, states, strict=True):
        norch.set_rng_state(state)
