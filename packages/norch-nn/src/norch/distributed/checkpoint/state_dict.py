"""The states of a model and its optimisers by the names of the parameters, whichever way they are shared out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import norch
from norch import Tensor, nn
from norch.optim import Optimizer

from ..fsdp import FSDPModule
from ..objects import broadcast_object_list
from ..optim import ZeroRedundancyOptimizer
from ..shard import cut_state
from ..world import is_initialized
from .loading import StateOf

Optimizers = Optimizer | list[Optimizer] | tuple[Optimizer, ...]


@dataclass
class StateDictOptions:
    """full_state_dict: whole tensors, gathered on all ranks, instead of this rank's shards. cpu_offload: on the CPU.
    strict: whether all names must be there when a model's state is set. broadcast_from_rank0: what rank 0 gives is set
    on all."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    strict: bool = True
    broadcast_from_rank0: bool = False


def get_model_state_dict(model: nn.Module, *, options: StateDictOptions | None = None) -> dict[str, Any]:
    """`model.state_dict()` by the names that the model has by itself, on the model's own memory unless `options` gather
    it: all ranks call it then."""
    options, model = options or StateDictOptions(), _bare(model)
    return {name: _given(value, options) for name, value in model.state_dict().items()}


def set_model_state_dict(
    model: nn.Module, model_state_dict: Mapping[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Takes over `model_state_dict`, such a state of `model`, of whole tensors or of this rank's shards. Returns what
    `load_state_dict` does.

    options: as of `get_model_state_dict`.
    """
    options = options or StateDictOptions()
    if options.broadcast_from_rank0 and is_initialized():
        given: list[Any] = [model_state_dict]
        broadcast_object_list(given, 0)
        model_state_dict = given[0]
    return _bare(model).load_state_dict(model_state_dict, options.strict)


def get_optimizer_state_dict(
    model: nn.Module, optimizers: Optimizers, *, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """`{"state": {name: state}, "param_groups": [options with names]}` of the `optimizers` of `model`'s parameters.
    Raises ValueError for a parameter that is not the model's.
    """
    options, names = options or StateDictOptions(), _names(model)
    states: dict[str, dict[str, Any]] = {}
    groups = []
    for optimizer in _listed(optimizers):
        for p, piece, state in _states(optimizer):
            shard = getattr(piece, "shard", None)
            found = StateOf({}, piece)
            for key, value in state.items():
                if shard is not None and isinstance(value, Tensor) and value.shape == piece.shape and value.ndim == 1:
                    value = value.detach()
                    value.shard = shard  # type: ignore[attr-defined]
                found[key] = _given(value, options)
            states[_name(names, p)] = dict(found) if options.full_state_dict else found
        groups += [{**g, "params": [_name(names, p) for p in g["params"]]} for g in optimizer.param_groups]
    return {"state": states, "param_groups": groups}


def set_optimizer_state_dict(
    model: nn.Module,
    optimizers: Optimizers,
    optim_state_dict: Mapping[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Takes over `optim_state_dict`, such a state of the `optimizers` of `model`, of whole tensors or of this rank's
    shards.

    Raises ValueError for parameters that are not in it, or that are in other groups there. options: as of
    `get_model_state_dict`.
    """
    names = _names(model)
    given = {tuple(group["params"]): group for group in optim_state_dict["param_groups"]}
    for optimizer in _listed(optimizers):
        states: dict[int, Any] = {}
        groups = []
        index = {id(p): i for i, p in enumerate(optimizer._params())}
        for group in optimizer.param_groups:
            own = tuple(_name(names, p) for p in group["params"])
            if own not in given:
                raise ValueError(
                    f"set_optimizer_state_dict(): the state has no group of the parameters {', '.join(own)}"
                )
            groups.append({**given[own], "params": [index[id(p)] for p in group["params"]]})
        for p, piece, _ in _states(optimizer):
            state = optim_state_dict["state"].get(_name(names, p))
            if state:
                shard = getattr(piece, "shard", None)
                states[index[id(p)]] = dict(state) if shard is None else cut_state(state, shard)
        optimizer.load_state_dict({"state": states, "param_groups": groups})


def get_state_dict(
    model: nn.Module, optimizers: Optimizers, *, options: StateDictOptions | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of the model and of its `optimizers`; options: as of `get_model_state_dict`."""
    return get_model_state_dict(model, options=options), get_optimizer_state_dict(model, optimizers, options=options)


def set_state_dict(
    model: nn.Module,
    optimizers: Optimizers,
    *,
    model_state_dict: Mapping[str, Any],
    optim_state_dict: Mapping[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Takes over both: `model_state_dict` and `optim_state_dict`, that of `optimizers`, with `options`. Raises
    ValueError as set_optimizer_state_dict does. Returns what the model's `load_state_dict` does.
    """
    found = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return found


def _bare(model: nn.Module) -> nn.Module:
    """The model itself, without what replicates or shards it."""
    wrappers = ("DistributedDataParallel", "FullyShardedDataParallel")
    return model.module if type(model).__name__ in wrappers else model


def _listed(optimizers: Optimizers) -> list[Optimizer]:
    return list(optimizers) if isinstance(optimizers, list | tuple) else [optimizers]


def _names(model: nn.Module) -> dict[int, str]:
    model = _bare(model)
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.reshard()
    return {id(p): name for name, p in model.named_parameters()}


def _name(names: dict[int, str], p: Tensor) -> str:
    if id(p) not in names:
        raise ValueError(
            "a parameter of the optimizer is none of the model's; with fully_shard make the optimizer after it"
        )
    return names[id(p)]


def _states(optimizer: Optimizer) -> Iterator[tuple[Tensor, Tensor, Mapping[str, Any]]]:
    """A parameter, what this rank steps on of it, and the state of that."""
    sharded = isinstance(optimizer, ZeroRedundancyOptimizer)
    local: Any = optimizer.optim if sharded else optimizer  # type: ignore[attr-defined]
    for p, piece in zip(optimizer._params(), local._params(), strict=True):
        yield p, piece, local.state.get(piece) or {}


def _given(value: Any, options: StateDictOptions) -> Any:
    if not isinstance(value, Tensor):
        return value
    shard = getattr(value, "shard", None)
    if options.full_state_dict and shard is not None:
        with norch.no_grad():
            value = shard.gather(value)
    if options.cpu_offload and value.device.type != "cpu":
        value = value.cpu()
        if not options.full_state_dict and shard is not None:
            value.shard = shard
    return value
