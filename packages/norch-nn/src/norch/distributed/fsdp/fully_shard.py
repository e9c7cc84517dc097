"""`fully_shard`, and the methods that a module has after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import wraps
from typing import Any, cast

import norch
from norch import nn

from ..process_group import ProcessGroup
from ..world import resolve
from .flat import Flat, Places
from .policy import MixedPrecisionPolicy, OffloadPolicy
from .state import State


def fully_shard(
    module: Any,
    *,
    mesh: Any = None,
    reshard_after_forward: bool | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: Iterable[norch.Tensor] = (),
) -> Any:
    """Leaves this rank a shard of each parameter of `module`, but for those of blocks in it that were given before.

    module: a module, or several, each a block of its own. Give the blocks of a model first, then the model: what is
        gathered at a time is one block, the next, and what is left for the model itself. Its class becomes one that is
        an FSDPModule too.
    mesh: the group, by default all ranks; a mesh of one dim will do.
    reshard_after_forward: whether parameters are freed between forward and backward pass; by default those of all
        blocks but the outermost are.
    mp_policy: the dtypes, see MixedPrecisionPolicy. offload_policy: an OffloadPolicy, which changes nothing.
        ignored_params: stay whole, and are not reduced.

    The values are rank 0's. `parameters()` are the shards from then on, flat, which optimisers work on and whose
    gradients are those of the mean over the ranks: parameters that a backward pass did not reach get zeros, if any of
    their block did. `state_dict()` has the shards, for `norch.distributed.checkpoint`; `load_state_dict` takes those
    and whole tensors. `nn.utils.clip_grad_norm_` and GradScaler see all ranks' elements.

    Raises ValueError for parameters that are shared with a module outside that was sharded before, and for a module
    that was; NotImplementedError for a mesh of more dims and for a number as reshard_after_forward. After Rajbhandari
    et al. (2020) and Zhao et al. (2023). Raises TypeError for what is no module, ValueError for one that was sharded
    before.
    """
    if isinstance(module, list | tuple):
        for one in module:
            fully_shard(
                one,
                mesh=mesh,
                reshard_after_forward=reshard_after_forward,
                mp_policy=mp_policy,
                ignored_params=ignored_params,
            )
        return module
    if not isinstance(module, nn.Module):
        raise TypeError(f"fully_shard(): expected a module, got {type(module).__name__}")
    if isinstance(module, FSDPModule):
        raise ValueError(f"fully_shard(): this {type(module).__name__} was sharded before")
    if reshard_after_forward is not None and not isinstance(reshard_after_forward, bool):
        raise NotImplementedError("fully_shard(): reshard_after_forward is True, False or None; no number of ranks")
    group, policy = _group_of(mesh), mp_policy or MixedPrecisionPolicy()
    inner = _states(module)
    flats = [Flat(*found, group, policy) for found in _by_dtype(module, inner, {id(p) for p in ignored_params})]
    state = State(module, flats, policy, reshard_after_forward)
    for other in inner:
        other.schedule = state.schedule
    state.schedule.states += inner
    module.__dict__["_fsdp"] = state
    module.__class__ = type(f"FSDP{type(module).__name__}", (FSDPModule, type(module)), {})
    module.register_state_dict_pre_hook(lambda part, prefix, keep_vars: part.reshard())
    module.register_state_dict_post_hook(_mark)
    module.register_load_state_dict_pre_hook(_cut)
    return module


def _group_of(mesh: Any) -> ProcessGroup:
    if mesh is not None and not isinstance(mesh, ProcessGroup) and hasattr(mesh, "get_group"):
        if getattr(mesh, "ndim", 1) != 1:
            raise NotImplementedError("fully_shard(): a mesh of one dim; replicas of shards are not supported")
        mesh = mesh.get_group()
    group = resolve(mesh)
    if group is None:
        raise ValueError("fully_shard(): this rank is not in the group")
    return group


def _by_dtype(
    module: nn.Module, inner: Sequence[State], ignored: set[int]
) -> Iterable[tuple[list[nn.Parameter], list[Places]]]:
    """The parameters that are the module's to gather, and where they are, for each dtype and device."""
    taken = {(id(part), name) for s in inner for flat in s.flats for places in flat.places for part, name in places}
    found: dict[int, tuple[nn.Parameter, Places]] = {}
    for path, part in module.named_modules():
        for name in part._parameter_names:
            p = part.__dict__[name]
            if p is None or id(p) in ignored or (id(part), name) in taken:
                continue
            if hasattr(p, "shard"):
                raise ValueError(
                    f"fully_shard(): {path}.{name} is shared with a module that was sharded without this one; shard a "
                    "module that has both instead"
                )
            found.setdefault(id(p), (p, []))[1].append((part, name))
    kinds: dict[Any, tuple[list[nn.Parameter], list[Places]]] = {}
    for p, places in found.values():
        params, all_places = kinds.setdefault((p.dtype, p.device), ([], []))
        params.append(p)
        all_places.append(places)
    return kinds.values()


def _names(module: nn.Module, prefix: str) -> Iterable[tuple[str, nn.Parameter]]:
    """The names in a state dict of what a block has shards of."""
    paths = {id(part): f"{prefix}{path}." if path else prefix for path, part in module.named_modules()}
    for flat in module._fsdp.flats:
        for p, places in zip(flat.params, flat.places, strict=True):
            for part, name in places:
                yield paths[id(part)] + name, p


def _mark(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    for name, p in _names(module, prefix):
        if name in state:
            state[name].shard = p.shard  # type: ignore[attr-defined]


def _cut(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Whole tensors in a state dict become this rank's shards of them."""
    module._fsdp.reshard()
    for name, p in _names(module, prefix):
        given, shard = state.get(name), p.shard  # type: ignore[attr-defined]
        if given is not None and not hasattr(given, "shard"):
            whole = norch.as_tensor(given)
            if tuple(whole.shape) == shard.shape:
                state[name] = shard.cut(whole)


def _states(module: Any, recurse: bool = True) -> list[State]:
    return [part._fsdp for part in (module.modules() if recurse else [module]) if isinstance(part, FSDPModule)]


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Has the method `method_name` of a module that was sharded, which uses its parameters, gather them as `forward`
    does.
    """
    if not isinstance(module, FSDPModule):
        return
    method, state, part = getattr(module, method_name), module._fsdp, cast(nn.Module, module)

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = state.pre_forward(part, args, kwargs)
        try:
            output = method(*args, **kwargs)
        except Exception:
            state.post_forward(part, args, None)
            raise
        return state.post_forward(part, args, output)

    module.__dict__[method_name] = call


class FSDPModule:
    """What `fully_shard` makes of a module's class."""

    _fsdp: State

    def unshard(self, async_op: bool = False) -> None:
        """Gathers the parameters; with `async_op` it is only begun, and ends when they are needed."""
        if async_op:
            self._fsdp.prefetch()
        else:
            self._fsdp.unshard()

    def reshard(self) -> None:
        """Frees the gathered parameters; what was written to them is lost."""
        self._fsdp.reshard()

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward passes reduce gradients. Those of passes that do not are kept whole until one does.

        requires_gradient_sync: whether; recurse: of the blocks in it too.
        """
        for state in _states(self, recurse):
            state.sync = requires_gradient_sync

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """As the argument of `fully_shard`. recurse: of the blocks in it too."""
        for state in _states(self, recurse):
            state.reshard_after_forward = reshard_after_forward

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Whether parameters are freed after a backward pass: False saves gathering them for the next of several
        passes between two steps, the last of which must free them.

        reshard_after_backward: whether; recurse: of the blocks in it too.
        """
        for state in _states(self, recurse):
            state.reshard_after_backward = reshard_after_backward

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Does nothing with `is_last_backward`: every backward pass ends with its reductions."""

    def set_modules_to_forward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """modules: whose parameters are gathered ahead of their turn, when this module's forward pass begins; by
        default those of the block that came next the last time.
        """
        self._fsdp.forward_prefetch = [m._fsdp for m in modules]

    def set_modules_to_backward_prefetch(self, modules: Sequence[FSDPModule]) -> None:
        """modules: the same for the backward pass; by default those of the block before."""
        self._fsdp.backward_prefetch = [m._fsdp for m in modules]
