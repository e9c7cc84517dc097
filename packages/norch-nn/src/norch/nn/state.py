"""The state of a module as a flat dict of tensors, and back."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import norch
from norch import switches

from .complex_pairs import tensor_of
from .parameter import Parameter, is_lazy

if TYPE_CHECKING:
    from .module import Module


EXTRA_KEY = "_extra_state"
"""The key under which is what a module saves beside its tensors."""


class StateDictError(norch.NorchError, RuntimeError):
    """A state dict that does not fit the module it was to be loaded into."""


class LoadResult(NamedTuple):
    """The keys that `load_state_dict` missed, and those that it had no use for."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"LoadResult(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


_IncompatibleKeys, _EXTRA_STATE_KEY_SUFFIX = LoadResult, EXTRA_KEY  # PyTorch's names


def _own(module: Module) -> list[str]:
    """The names of what a module itself saves."""
    names = [*module._parameter_names, *(name for name, kept in module._buffer_names.items() if kept)]
    return [name for name in names if module.__dict__[name] is not None]


def saved_tensors(module: Module, prefix: str = "") -> Iterator[tuple[str, norch.Tensor]]:
    """Every parameter and persistent buffer by each of its dotted names: a shared one comes several times."""
    for path, part in module.named_modules(prefix=prefix.removesuffix("."), remove_duplicate=False):
        lead = f"{path}." if path else ""
        for name in _own(part):
            yield lead + name, part.__dict__[name]


def save_state(module: Module, prefix: str, keep_vars: bool, state: dict[str, Any] | None = None) -> dict[str, Any]:
    """Puts the tensors of a module and all below it into `state`, with the hooks of each.

    The attribute `_metadata` of a new `state` says of each module which version of its class it is.
    """
    if state is None:
        state = OrderedDict()
        state._metadata = OrderedDict()  # type: ignore[attr-defined]
    own = {"version": module._version}
    if hasattr(state, "_metadata"):
        state._metadata[prefix.removesuffix(".")] = own
    hooks = module._hooks
    if hooks is not None:
        for hook in tuple(hooks.state_pre.values()):
            hook.function(module, prefix, keep_vars)
    module._save_to_state_dict(state, prefix, keep_vars)
    for name in module._module_names:
        child = module.__dict__[name]
        if child is not None:
            child.state_dict(destination=state, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    if hooks is not None:
        for hook in tuple(hooks.state.values()):
            found = hook.function(module, state, prefix, own)
            if found is not None and hook.replaces:
                state = found
            elif found is not None:
                raise RuntimeError("a state_dict post-hook must return None; it may change the dict it is given")
    return state


def save_own(module: Module, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
    for name in _own(module):
        value = module.__dict__[name]
        destination[prefix + name] = value if keep_vars else value.detach()
    if _defines(module, "get_extra_state"):
        destination[prefix + EXTRA_KEY] = module.get_extra_state()


def get_extra_state(self: Module) -> Any:
    """What a class saves beside its tensors, under the key "_extra_state". Raises RuntimeError: a class has its own."""
    raise RuntimeError(f"{type(self).__name__} has no extra state: it defines no get_extra_state()")


def set_extra_state(self: Module, state: Any) -> None:
    """Takes `state`, what `get_extra_state` gave. Raises RuntimeError: a class has its own."""
    raise RuntimeError(f"{type(self).__name__} has no extra state: it defines no set_extra_state()")


def _defines(module: Module, name: str) -> bool:
    """Whether the class of a module has a method of this file of its own."""
    return getattr(type(module), name) is not globals()[name]


def _has_extra(module: Module) -> bool:
    return any(_defines(module, name) for name in ("get_extra_state", "set_extra_state"))


class LocalMetadata(dict[str, Any]):
    """What is known of a module whose state is loaded."""

    reached = False
    """Whether its `_load_from_state_dict` came to Module's."""


def load_state(module: Module, given: Mapping[str, Any], strict: bool, assign: bool) -> LoadResult:
    if not isinstance(given, Mapping):
        raise norch.DTypeError(f"load_state_dict(): expected a dict of tensors, got {type(given).__name__}")
    parts = list(module.named_modules(remove_duplicate=False))
    state, missing, unexpected, errors = OrderedDict(given), list[str](), list[str](), list[str]()
    metadata: dict[str, dict[str, Any]] = getattr(given, "_metadata", {})
    alone: dict[str, Module] = {}
    for path, part in parts:
        lead = f"{path}." if path else ""
        local = LocalMetadata(metadata.get(path, {}))
        if assign:
            local["assign_to_params_buffers"] = True
        for hook in () if part._hooks is None else tuple(part._hooks.load_pre.values()):
            first = (part,) if hook.with_module else ()
            hook.function(*first, state, lead, local, strict, missing, unexpected, errors)
        part._load_from_state_dict(state, lead, local, strict, missing, unexpected, errors)
        if not local.reached:
            alone[lead] = part
    own = {(f"{path}." if path else "") + name: (part, name) for path, part in parts for name in _own(part)}
    result = LoadResult(missing, unexpected)
    extra = {(f"{path}." if path else "") + EXTRA_KEY: part for path, part in parts if _has_extra(part)}
    wanted = [k for k in (*own, *extra) if not _is_of(alone, k)]
    missing += [k for k in wanted if k not in state and k not in missing]
    unexpected += [k for k in state if k not in own and k not in extra and k not in unexpected and not _is_of(alone, k)]
    found: dict[str, norch.Tensor] = {}
    for key, (part, name) in own.items():
        if key in state:
            found[key] = source = norch.as_tensor(tensor_of(state[key]))
            target = part.__dict__[name]
            if not target.ndim and source.shape == (1,):  # as PyTorch before 0.4 had it
                found[key] = source = source[0]
            if source.shape != target.shape and not is_lazy(target):
                errors.append(
                    f"size mismatch for {key}: the state_dict has shape {tuple(source.shape)}, the module "
                    f"{tuple(target.shape)}."
                )
            elif source.is_meta and not target.is_meta and not assign:
                errors.append(f"{key} is on the device 'meta' in the state_dict, so that it has no values to copy.")
    for _, part in reversed(parts):  # children first
        for hook in () if part._hooks is None else tuple(part._hooks.load.values()):
            if hook.function(part, result) is not None:
                raise RuntimeError("a load_state_dict post-hook must return None; it may change the keys it is given")
    problems = []
    for title, keys in (("Missing", missing), ("Unexpected", unexpected)) if strict else ():
        if keys:
            problems.append(f"{title} key(s) in state_dict: " + ", ".join(f'"{k}"' for k in keys) + ".")
    problems += errors
    if problems:
        raise StateDictError(f"Error(s) in loading state_dict for {type(module).__name__}:\n\t" + "\n\t".join(problems))
    for key, part in extra.items():
        if key in state:
            part.set_extra_state(state[key])
    if assign:
        _assign(own, found)
        return result
    with norch.no_grad():
        for key, source in found.items():
            part, name = own[key]
            target = part.__dict__[name]
            if target.is_meta and not source.is_meta:
                warnings.warn(
                    f"load_state_dict(): {key} is on the device 'meta', where copying does nothing; did you mean "
                    "assign=True, or to_empty(device=...) first?",
                    stacklevel=3,
                )
            if is_lazy(target) and source.shape != target.shape:
                target.materialize(source.shape)
            target.copy_(source.detach())
    return result


def _is_of(alone: dict[str, Module], key: str) -> bool:
    """Whether a key is of a module that loads by itself, and not of one below it."""
    return any(
        key.startswith(lead) and key[len(lead) :].partition(".")[0] not in part._module_names
        for lead, part in alone.items()
    )


def _assign(own: dict[str, tuple[Module, str]], found: dict[str, norch.Tensor]) -> None:
    """Makes the tensors themselves those of the module; one that comes twice stays one."""
    assigned: dict[tuple[int, bool], norch.Tensor] = {}
    for key, source in found.items():
        part, name = own[key]
        old = part.__dict__[name]
        switches.replaced(part, name)
        if not isinstance(old, Parameter):
            part.__dict__[name] = source.detach()
            continue
        same = (id(source), old.requires_grad)
        if same not in assigned:
            keep = isinstance(source, Parameter) and source.requires_grad == old.requires_grad
            assigned[same] = source if keep else Parameter(source, old.requires_grad)
        part.__dict__[name] = assigned[same]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Takes `prefix`, such as "module.", from the names in `state_dict` that begin with it, in place."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key.removeprefix(prefix)] = state_dict.pop(key)
    metadata: dict[str, Any] = getattr(state_dict, "_metadata", {})
    for key in list(metadata):
        if key and (key.startswith(prefix) or key == prefix.replace(".", "")):
            metadata[key.removeprefix(prefix) if key.startswith(prefix) else ""] = metadata.pop(key)
