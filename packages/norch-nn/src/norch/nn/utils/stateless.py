"""Modules as functions of their parameters: `functional_call`, and the states of several models stacked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import norch

if TYPE_CHECKING:
    from ..module import Module


def _places(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    """By dotted name where each parameter and buffer is kept; a shared one has several names."""
    found = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for name in (*part._parameter_names, *part._buffer_names):
            found[f"{path}.{name}" if path else name] = (part.__dict__, name)
    return found


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, norch.Tensor] | Sequence[Mapping[str, norch.Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """What `module(*args, **kwargs)` gives with these tensors in place of its parameters and buffers, which are put
    back afterwards.

    parameter_and_buffer_dicts: tensors by dotted name, in one dict or several; what is not named stays as it is.
    Other names are attributes while the module runs. tie_weights: a tensor that has several names is replaced under all
    of them. What the module assigns to a name anew is put into the dict.

    Raises ValueError for a name in two dicts, and for two tensors given for one that is shared; AttributeError for a
    name below a module that is not there, TypeError for that of an attribute that is no tensor; RuntimeError with
    `strict` for names that are missing or are no parameter's or buffer's.
    """
    several = not isinstance(parameter_and_buffer_dicts, Mapping)
    dicts: list[Any] = list(parameter_and_buffer_dicts) if several else [parameter_and_buffer_dicts]
    given: dict[str, norch.Tensor] = {}
    for some in dicts:
        repeated = given.keys() & some.keys()
        if repeated:
            raise ValueError(f"functional_call(): {', '.join(sorted(repeated))} comes in more than one dict")
        given.update(some)
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    before = dict(given)
    try:
        with _reparametrize_module(module, given, tie_weights=tie_weights, strict=strict):
            return module(*positional, **(kwargs or {}))
    finally:
        for name in [name for name, value in before.items() if given[name] is not value]:
            for some in dicts:
                if name in some:
                    some[name] = given[name]


@contextmanager
def _reparametrize_module(
    module: Module,
    parameters_and_buffers: dict[str, norch.Tensor],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> Iterator[None]:
    """Puts these tensors, by dotted name, in place of the module's parameters and buffers, and its own back at the end.

    tie_weights, strict and the errors are those of `functional_call`. What the module assigns to a name anew is put
    into the dict. stack_weights: taken as PyTorch takes it; names are put back each on its own, in whatever order.
    """
    places = _places(module)
    shared = _shared_names(places) if tie_weights else {}
    chosen: dict[str, Any] = {}
    for name, value in parameters_and_buffers.items():
        for other in shared.get(name, (name,)):
            if other in parameters_and_buffers and parameters_and_buffers[other] is not value:
                raise ValueError(f"functional_call(): {name} and {other} are one tensor, but different ones are given")
            chosen[other] = value
    others = {n: _attribute(module, n) for n in chosen if n not in places}
    if strict:
        missing = [n for n, (own, name) in places.items() if n not in chosen and own[name] is not None]
        if missing or others:
            raise RuntimeError(f"functional_call(): Missing key(s): {missing}. Unexpected key(s): {list(others)}.")
    before = {n: places[n][0][places[n][1]] for n in chosen if n in places}
    try:
        for n in before:
            own, name = places[n]
            own[name] = chosen[n]
        for n, (part, name, _) in others.items():
            setattr(part, name, chosen[n])
        yield
    finally:
        for n, value in before.items():
            own, name = places[n]
            _put_back(parameters_and_buffers, n, chosen[n], own[name])
            own[name] = value
        for n, (part, name, value) in others.items():
            _put_back(parameters_and_buffers, n, chosen[n], getattr(part, name, chosen[n]))
            delattr(part, name)
            if value is not _ABSENT:
                setattr(part, name, value)


_ABSENT: Any = object()


def _attribute(module: Module, path: str) -> tuple[Module, str, Any]:
    """Of a dotted name that is no parameter's or buffer's: the module, and what it has under the last part of it.

    Raises AttributeError where there is no such module, TypeError for an attribute that is neither tensor nor None.
    """
    above, _, name = path.rpartition(".")
    part = module.get_submodule(above)
    value = getattr(part, name, _ABSENT)
    if value is not _ABSENT and value is not None and not isinstance(value, norch.Tensor):
        raise TypeError(f"functional_call(): {path} is a {type(value).__name__}, not a tensor")
    return part, name, value


def _put_back(tensors: dict[str, Any], path: str, given: Any, now: Any) -> None:
    """Puts what a module has assigned to a name into the dict that had another tensor for it."""
    if now is not given and path in tensors:
        tensors[path] = now


def _shared_names(places: dict[str, tuple[dict[str, Any], str]]) -> dict[str, list[str]]:
    """By name the names of the same tensor."""
    by_tensor: dict[int, list[str]] = {}
    for n, (own, name) in places.items():
        if own[name] is not None:
            by_tensor.setdefault(id(own[name]), []).append(n)
    return {n: names for names in by_tensor.values() for n in names}


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, norch.Tensor], dict[str, norch.Tensor]]:
    """The parameters and the buffers of models of one class, each stacked along a new dim 0: two dicts, for `vmap`.

    The stacked parameters are leaves that require grad as the models' own do. Raises ValueError for no models, for some
    in training mode and others not, and for models of different classes.
    """
    models = list(models)
    if not models:
        raise ValueError("stack_module_state(): expected at least one model, got 0")
    if len({m.training for m in models}) > 1:
        raise ValueError("stack_module_state(): expected all models to have the same training mode")
    if len({type(m) for m in models}) > 1:
        raise ValueError("stack_module_state(): expected all models to be of the same class")
    return _stacked([dict(m.named_parameters()) for m in models]), _stacked([dict(m.named_buffers()) for m in models])


def _stacked(states: list[dict[str, norch.Tensor]]) -> dict[str, norch.Tensor]:
    out = {}
    for name in states[0]:
        tensors = [state[name] for state in states]
        if len({t.requires_grad for t in tensors}) > 1:
            raise ValueError(f"stack_module_state(): {name} requires grad in some of the models only")
        out[name] = norch.stack([t.detach() for t in tensors]).requires_grad_(tensors[0].requires_grad)
    return out


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Has the batch and instance norms of the model `root` normalise by the batch at hand, without running statistics,
    which `vmap` cannot change. Returns the model."""
    from ..normalization import _NormBase

    for part in root.modules():
        if isinstance(part, _NormBase):
            part.running_mean = part.running_var = part.num_batches_tracked = None
            part.track_running_stats = False
    return root
