"""The state of a module as a flat dict of tensors, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import norch

if TYPE_CHECKING:
    from .module import Module


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


def saved_tensors(module: Module, prefix: str = "") -> Iterator[tuple[str, norch.Tensor]]:
    """Every parameter and persistent buffer by each of its dotted names: a shared one comes several times."""
    for path, part in module.named_modules(prefix=prefix.removesuffix("."), remove_duplicate=False):
        lead = f"{path}." if path else ""
        names = [*part._parameter_names, *(name for name, kept in part._buffer_names.items() if kept)]
        for name in names:
            value = part.__dict__[name]
            if value is not None:
                yield lead + name, value


def save_state(module: Module, prefix: str, keep_vars: bool) -> dict[str, norch.Tensor]:
    return {name: value if keep_vars else value.detach() for name, value in saved_tensors(module, prefix)}


def load_state(module: Module, state: Mapping[str, Any], strict: bool) -> LoadResult:
    if not isinstance(state, Mapping):
        raise norch.DTypeError(f"load_state_dict(): expected a dict of tensors, got {type(state).__name__}")
    own = dict(saved_tensors(module))
    result = LoadResult([k for k in own if k not in state], [k for k in state if k not in own])
    problems = []
    if strict:
        for title, keys in (("Missing", result.missing_keys), ("Unexpected", result.unexpected_keys)):
            if keys:
                problems.append(f"{title} key(s) in state_dict: " + ", ".join(f'"{k}"' for k in keys) + ".")
    found = {}
    for name, target in own.items():
        if name in state:
            found[name] = source = norch.as_tensor(state[name]).detach()
            if source.shape != target.shape:
                problems.append(
                    f"size mismatch for {name}: the state_dict has shape {tuple(source.shape)}, the module "
                    f"{tuple(target.shape)}."
                )
    if problems:
        raise StateDictError(f"Error(s) in loading state_dict for {type(module).__name__}:\n\t" + "\n\t".join(problems))
    with norch.no_grad():
        for name, source in found.items():
            own[name].copy_(source)
    return result
