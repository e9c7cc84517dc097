"""Parts of a model as models of their own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import norch
from norch import nn

from ..ops.misc import make_divisible

_make_divisible = make_divisible


class IntermediateLayerGetter(nn.ModuleDict):
    """The first children of a model, one after the other, up to the last of `return_layers`.

    return_layers: the name of what comes out of a child, by the child's name. Raises ValueError for another child.
    """

    def __init__(self, model: nn.Module, return_layers: Mapping[str, str]) -> None:
        children = dict(model.named_children())
        wanted = {str(key): str(value) for key, value in return_layers.items()}
        missing = [name for name in wanted if name not in children]
        if missing:
            raise ValueError(f"return_layers: {type(model).__name__} has no child {', '.join(missing)}")
        names = list(children)
        last = max((names.index(name) for name in wanted), default=-1)
        super().__init__({name: children[name] for name in names[: last + 1]})
        self.return_layers = wanted

    def forward(self, x: norch.Tensor) -> dict[str, norch.Tensor]:
        """What comes out of the children that were named, in order."""
        out: dict[str, norch.Tensor] = OrderedDict()
        for name, module in self.items():
            x = module(x)
            if name in self.return_layers:
                out[self.return_layers[name]] = x
        return out
