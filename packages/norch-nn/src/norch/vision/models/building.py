"""What the models share: their constructors by name, the refusal of weights to download, and ways to initialise."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import norch
from norch import nn

BUILDERS: dict[str, Callable[..., nn.Module]] = {}


def downloads() -> Path:
    """Where PyTorch keeps what it downloads: norch reads files of weights there, and writes none."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("TORCH_HOME", f"{cache}/torch")).expanduser() / "hub" / "checkpoints"


def no_download(what: str) -> NoReturn:
    raise NotImplementedError(
        f"{what}: norch downloads no weights; download the file that torchvision's page of this model names and put it "
        f"into {downloads()}, or make the model with weights=None and call model.load_state_dict(norch.load(path))"
    )


def _weights_file(name: str, what: str) -> Path:
    """The file of weights that is there. Raises NotImplementedError for none and for several."""
    patterns = (f"{name}-*.pth", f"{name}_coco-*.pth", f"{name}_rwightman-*.pth", f"{name}_lukemelas-*.pth")
    found = sorted(file for pattern in patterns for file in downloads().glob(pattern))
    if not found:
        no_download(what)
    if len(found) > 1:
        raise NotImplementedError(
            f"{what}: {downloads()} has {', '.join(file.name for file in found)}; make the model with weights=None and "
            "call model.load_state_dict(norch.load(path)) with one of them"
        )
    return found[0]


class _Weights(type):
    """A class of torchvision's weights: any member of it can be named."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Weights(f"{cls.__name__}.{name}")


class Weights:
    """A name of weights."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        no_download(f"{self.name}.{name}")


def weights_class(name: str) -> Any:
    return _Weights(name, (), {"__module__": "norch.vision.models"})


def builder(
    name: str,
    make: Callable[..., nn.Module],
    *args: Any,
    doc: str = "",
    gives: str = "(n, num_classes)",
    with_weights: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Any:
    """The constructor of a model by its name: `make(*args, **options)`, where callers may give more options.

    gives: what comes out. with_weights: options where weights are asked for.
    """

    def build(weights: Any = None, progress: bool = True, *, pretrained: Any = False, **more: Any) -> nn.Module:
        if not weights and not pretrained:
            return make(*args, **{**options, **more})
        path = _weights_file(name, f"{name}(weights={weights or pretrained!r})")
        model = make(*args, **{**options, **with_weights, **more})
        model.load_state_dict(norch.load(path))
        return model

    build.__name__ = build.__qualname__ = name
    family = make if isinstance(make, type) else make.__annotations__["return"]
    build.__doc__ = f"""{doc or name}: {sys.modules[make.__module__].__doc__}

    Takes images (n, 3, h, w) and gives {gives}. Options: those of `{getattr(family, "__name__", family)}`.

    weights, pretrained: by default drawn at random; any others are read from the file that PyTorch's cache has of this
    model. Raises NotImplementedError, which says where to put it, where it has none: nothing is downloaded.
    """
    build.__module__ = make.__module__
    BUILDERS[name] = build
    return build


def list_models(module: Any = None, include: Any = None, exclude: Any = None) -> list[str]:
    """The names of the models, sorted: matching a pattern of `include` and none of `exclude`.

    module: by default all; else those of that module, or of the modules of that package.
    """

    def given(patterns: Any) -> list[str]:
        return [patterns] if isinstance(patterns, str) else list(patterns or [])

    def within(build: Any) -> bool:
        return module is None or module.__name__ in (build.__module__, build.__module__.rpartition(".")[0])

    found = [name for name, build in BUILDERS.items() if within(build)]
    if include:
        found = [name for name in found if any(fnmatch(name, pattern) for pattern in given(include))]
    return sorted(name for name in found if not any(fnmatch(name, pattern) for pattern in given(exclude)))


def get_model_builder(name: str) -> Callable[..., nn.Module]:
    """The constructor of that name. Raises ValueError where there is none."""
    if name.lower() not in BUILDERS:
        raise ValueError(f"Unknown model {name}; norch.vision.models.list_models() has their names")
    return BUILDERS[name.lower()]


def get_model(name: str, **config: Any) -> nn.Module:
    """The model of that name, made with the options `config`. Raises ValueError where there is none."""
    return get_model_builder(name)(**config)


def initialise(model: nn.Module, convolution: Callable[..., Any], linear: Callable[..., Any] | None = None) -> None:
    """Calls `convolution` and `linear` on the weights of such layers, whose biases become 0; norms become 1 and 0."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            convolution(module.weight)
        elif isinstance(module, nn.Linear) and linear is not None:
            linear(module.weight)
        elif isinstance(module, nn.BatchNorm2d | nn.GroupNorm):
            if module.weight is not None:
                nn.init.ones_(module.weight)
        else:
            continue
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def he_fan_out(weight: Any, nonlinearity: str = "leaky_relu") -> None:
    """Normal, for the number of outputs that an input reaches (He et al., 2015)."""
    nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity=nonlinearity)


def he_fan_out_relu(weight: Any) -> None:
    he_fan_out(weight, "relu")


def small_normal(weight: Any) -> None:
    nn.init.normal_(weight, 0, 0.01)
