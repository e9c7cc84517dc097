"""What the modules inside of a model give, as torchvision's feature extractors return it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import norch
from norch import nn

Nodes = Mapping[str, str] | Sequence[str] | None


class _Enough(Exception):
    """All that was asked for is there: the rest of the model need not run."""


def create_feature_extractor(
    model: nn.Module,
    return_nodes: Nodes = None,
    train_return_nodes: Nodes = None,
    eval_return_nodes: Nodes = None,
    **options: Any,
) -> nn.Module:
    """A module that runs `model` and returns a dict of what modules inside of it give, up to the last of them.

    return_nodes: names of the results by names of modules, `{"layer4": "features"}`, or a list of modules' names. The
    second call of a module in one pass is its name with "_1", and so on. train_return_nodes, eval_return_nodes: in its
    place, one for training and one for evaluation. options: taken for torchvision's sake, which traces the model; so
    it knows the names of functions' results too (`flatten`), and norch those of modules alone. Parameters are those of
    `model`, under the same names. Raises ValueError for names that are no modules, and unless nodes are named one way.
    """
    train, evaluation = (train_return_nodes, eval_return_nodes) if return_nodes is None else (return_nodes,) * 2
    if train is None or evaluation is None or (return_nodes is not None and (train_return_nodes or eval_return_nodes)):
        raise ValueError("create_feature_extractor(): name return_nodes, or train_return_nodes and eval_return_nodes")
    return _FeatureExtractor(model, _by_name(model, train), _by_name(model, evaluation))


def _by_name(model: nn.Module, nodes: Any) -> dict[str, str]:
    names = dict(nodes) if isinstance(nodes, Mapping) else {name: name for name in nodes}
    modules = dict(model.named_modules())
    missing = [name for name in names if _module_of(name, modules) is None]
    if missing:
        raise ValueError(f"create_feature_extractor(): {type(model).__name__} has no module {', '.join(missing)}")
    return names


def _module_of(name: str, modules: Mapping[str, nn.Module]) -> str | None:
    """The module that a node is of: its own name, or that before the number of a later call."""
    before, underscore, number = name.rpartition("_")
    repeated = underscore and number.isdigit() and before in modules
    return name if name in modules else before if repeated else None


class _FeatureExtractor(nn.Module):
    def __init__(self, model: nn.Module, train: dict[str, str], evaluation: dict[str, str]) -> None:
        super().__init__()
        for name, child in model.named_children():
            self.add_module(name, child)
        for name, parameter in model.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, buffer in model.named_buffers(recurse=False):
            self.register_buffer(name, buffer)
        self._returns = {True: train, False: evaluation}
        self._whole = (model,)  # in a tuple, so that its parameters have no second name

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, norch.Tensor]:
        """What the named modules give for the model's arguments, `args` and `kwargs`, by the names of the results."""
        model, wanted = self._whole[0], self._returns[self.training]
        model.training = self.training
        modules = dict(model.named_modules())
        calls: Counter[str] = Counter()
        found: dict[str, Any] = {}

        def keep(name: str) -> Any:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                count = calls[name]
                calls[name] += 1
                node = f"{name}_{count}" if count else name
                if node in wanted:
                    found[node] = output
                    if len(found) == len(wanted):
                        raise _Enough

            return hook

        with ExitStack() as hooks:
            for name in {_module_of(node, modules) or "" for node in wanted}:
                hooks.callback(modules[name].register_forward_hook(keep(name)).remove)
            try:
                model(*args, **kwargs)
            except _Enough:
                pass
        missing = [node for node in wanted if node not in found]
        if missing:
            raise RuntimeError(f"{type(model).__name__} did not call {', '.join(missing)} in this pass")
        return {wanted[node]: found[node] for node in wanted}
