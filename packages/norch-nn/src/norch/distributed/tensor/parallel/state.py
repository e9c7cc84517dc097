"""The state of a cut model as that of the whole one, to be saved, and loaded at another number of processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from norch import Tensor, nn

from .layers import Cut, CutLayer


def _cuts(module: nn.Module) -> Iterator[tuple[str, Cut]]:
    for prefix, layer in module.named_modules(remove_duplicate=False):
        if isinstance(layer, CutLayer):
            for name, cut in layer.cuts.items():
                yield f"{prefix}.{name}".lstrip("."), cut


def full_state_dict(module: nn.Module) -> dict[str, Tensor]:
    """The `state_dict` of the model `module` before it was cut, tensors of whole shapes, in each process. All processes
    call it.
    """
    state = module.state_dict()
    for name, value in state.items():
        if hasattr(value, "shard"):  # fully_shard's
            state[name] = value.shard.gather(value)
    for name, cut in _cuts(module):
        state[name] = cut.whole(state[name])
    return state


def load_full_state_dict(module: nn.Module, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
    """Loads the `state_dict` of a whole model into a cut one, `module`: each process takes its parts. As
    `load_state_dict` does, it raises StateDictError where names or shapes do not fit.

    strict: whether all names must be there.
    """
    state = dict(state_dict)
    for name, cut in _cuts(module):
        if name in state:
            state[name] = cut.part(state[name])
    return module.load_state_dict(state, strict)
