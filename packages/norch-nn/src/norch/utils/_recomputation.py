"""A part of a model that stays in the graph while what its ops save is computed again: `checkpoint` without a backward
pass of its own, as PyTorch has it with use_reentrant=False."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary, ref

import norch

from ._pytree import tree_flatten, tree_unflatten

stops_early: ContextVar[bool] = ContextVar("checkpoint_stops_early", default=True)
"""Whether a second computation ends where nothing more is needed of it."""


class _Enough(BaseException):
    """All that was saved has been computed again. No `except Exception` on its way may catch it."""


class _Place:
    """Where an op has a tensor saved: its number among all that were, and what it was like."""

    __slots__ = ("__weakref__", "dtype", "number", "shape")

    def __init__(self, number: int, tensor: norch.Tensor) -> None:
        self.number, self.shape, self.dtype = number, tuple(tensor.shape), tensor.dtype


class _Arguments(norch.autograd.Function):
    """Saves the arguments as an op does, so that changes in place are noticed and hooks further out are asked."""

    @staticmethod
    def forward(ctx: Any, anchor: norch.Tensor, keep: Callable[[Any], None], *tensors: norch.Tensor) -> norch.Tensor:
        ctx.save_for_backward(*tensors)
        keep(ctx)
        return anchor.clone()


class Recomputation:
    """One call of `function`: its arguments, and of what its ops saved only the places."""

    def __init__(
        self,
        function: Callable[..., Any],
        contexts: tuple[AbstractContextManager[Any], AbstractContextManager[Any]],
        keep_rng: bool,
        early_stop: bool,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.function, self.early_stop = function, early_stop and stops_early.get()
        self.within, self.again = contexts
        self.random = norch.get_rng_state() if keep_rng else None
        self.autocast = norch.keep_autocast()
        leaves, self.structure = tree_flatten((args, kwargs))
        self.tensors_at = [i for i, a in enumerate(leaves) if isinstance(a, norch.Tensor)]
        self.others = [None if isinstance(a, norch.Tensor) else a for a in leaves]
        kept: list[Any] = []
        _Arguments.apply(norch.zeros((), requires_grad=True), kept.append, *[leaves[i] for i in self.tensors_at])
        self.kept = kept[0]
        self.places: list[ref[_Place]] = []
        self.found: WeakKeyDictionary[_Place, tuple[norch.Tensor, int]] = WeakKeyDictionary()

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The first computation."""
        with self.within, norch.autograd.graph.saved_tensors_hooks(self._note, self._find):
            return self.function(*args, **kwargs)

    def _note(self, tensor: norch.Tensor) -> _Place:
        place = _Place(len(self.places), tensor)
        self.places.append(ref(place))
        return place

    def _find(self, place: _Place) -> norch.Tensor:
        if place not in self.found:
            self._compute_again()
        if place not in self.found:
            raise norch.AutogradError(
                f"checkpoint(): computed again, the function saves {self.count} tensors, and not the "
                f"{len(self.places)} of the first time; it must do the same both times"
            )
        tensor, version = self.found[place]
        if tensor._version != version:
            raise norch.AutogradError(
                f"checkpoint(): a tensor of shape {place.shape} that an op saved has been changed in place since"
            )
        return tensor

    def _compute_again(self) -> None:
        self.count = 0
        leaves = list(self.others)
        for i, tensor in zip(self.tensors_at, self.kept.saved_tensors, strict=True):
            leaves[i] = tensor
        args, kwargs = tree_unflatten(leaves, self.structure)
        with (
            norch.random.fork_rng(),
            norch.enable_grad(),
            self.autocast,
            self.again,
            norch.autograd.graph.saved_tensors_hooks(self._note_again, _same),
        ):
            if self.random is not None:
                norch.set_rng_state(self.random)
            try:
                self.function(*args, **kwargs)
            except _Enough:
                pass

    def _note_again(self, tensor: norch.Tensor) -> norch.Tensor:
        place = self.places[self.count]() if self.count < len(self.places) else None
        self.count += 1
        tensor = tensor.detach()
        if place is not None:
            if (tuple(tensor.shape), tensor.dtype) != (place.shape, place.dtype):
                raise norch.AutogradError(
                    f"checkpoint(): computed again, the function saves a tensor of shape {tuple(tensor.shape)} and "
                    f"{tensor.dtype}, and not of {place.shape} and {place.dtype} as the first time; it must do the "
                    "same both times"
                )
            self.found[place] = tensor, tensor._version
        if self.early_stop and self.count == len(self.places):
            raise _Enough
        return tensor


def _same(tensor: norch.Tensor) -> norch.Tensor:
    return tensor
