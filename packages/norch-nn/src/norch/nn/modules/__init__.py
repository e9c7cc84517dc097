"""PyTorch's `nn.modules`, for scripts that name a class by where PyTorch has it: `nn.modules.conv.Conv2d`."""

import sys
from importlib import import_module
from typing import Any

_PLACES = {name: name for name in "activation container distance dropout linear loss module normalization".split()}
_PLACES |= {name: name for name in "padding pooling transformer".split()}
_PLACES |= {
    "batchnorm": "normalization",
    "conv": "convolution",
    "flatten": "linear",
    "fold": "pixels",
    "instancenorm": "normalization",
    "pixelshuffle": "pixels",
    "rnn": "recurrent",
    "sparse": "embedding",
    "upsampling": "pixels",
}

for _name, _place in _PLACES.items():
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = import_module(f"norch.nn.{_place}")


def __getattr__(name: str) -> Any:
    from norch import nn

    if hasattr(nn, name):
        return getattr(nn, name)
    raise AttributeError(f"module 'norch.nn.modules' has no attribute {name!r}")
