"""Models that give each pixel a class, under torchvision's names and with its keys.

Arguments that mean the same in every model:

    in_channels, low_channels, high_channels: of maps.
    num_classes: with the background. x, input: images (n, 3, h, w), floating.
    backbone: gives maps by name, "out" and, for aux_classifier, "aux".
    classifier, aux_classifier: give each pixel of a map, (n, c, h, w), its classes.
"""

from typing import Any

from ..building import weights_class as _weights_class
from .deeplabv3 import DeepLabV3 as DeepLabV3
from .deeplabv3 import deeplabv3_mobilenet_v3_large as deeplabv3_mobilenet_v3_large
from .deeplabv3 import deeplabv3_resnet50 as deeplabv3_resnet50
from .deeplabv3 import deeplabv3_resnet101 as deeplabv3_resnet101
from .fcn import FCN as FCN
from .fcn import fcn_resnet50 as fcn_resnet50
from .fcn import fcn_resnet101 as fcn_resnet101
from .lraspp import LRASPP as LRASPP
from .lraspp import lraspp_mobilenet_v3_large as lraspp_mobilenet_v3_large


def __getattr__(name: str) -> Any:
    if name.endswith("_Weights"):
        return _weights_class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
