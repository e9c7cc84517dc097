"""PyTorch's `nn.modules`, for scripts that name a class by where PyTorch has it: `nn.modules.conv.Conv2d`."""

import sys
from importlib import import_module
from typing import Any

_PLACES = {
    "activation": "activation",
    "batchnorm": "normalization",
    "container": "container",
    "conv": "convolution",
    "distance": "distance",
    "dropout": "dropout",
    "flatten": "linear",
    "fold": "pixels",
    "instancenorm": "normalization",
    "linear": "linear",
    "loss": "loss",
    "module": "module",
    "normalization": "normalization",
    "padding": "padding",
    "pixelshuffle": "pixels",
    "pooling": "pooling",
    "rnn": "recurrent",
    "sparse": "embedding",
    "transformer": "transformer",
    "upsampling": "pixels",
}

for _name, _place in _PLACES.items():
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = import_module(f"norch.nn.{_place}")


def __getattr__(name: str) -> Any:
    from norch import nn

    if hasattr(nn, name):
        return getattr(nn, name)
    raise AttributeError(f"module 'norch.nn.modules' has no attribute {name!r}")
