"""Models of images, under torchvision's names and with its keys, so that its files of weights load.

    model = norch.vision.models.resnet18()
    model.load_state_dict(norch.load("resnet18-f37072fd.pth"))

Nothing is downloaded: `weights=` and `pretrained=` read the file that PyTorch's cache has, or say where to put it.

Arguments that mean the same in every model:

    progress: ignored: nothing is downloaded.
    num_classes: how many numbers the last layer gives. dropout: the probability of the last layer's dropout.
    block: the class of the blocks.
    norm_layer: what makes the normalisations, called with the number of channels; BatchNorm2d unless said otherwise.
    init_weights: whether weights are drawn as the paper does.
    x: images (n, 3, h, w), floating.
"""

from typing import Any

import norch

from . import segmentation as segmentation
from .alexnet import AlexNet as AlexNet
from .alexnet import alexnet as alexnet
from .building import get_model as get_model
from .building import get_model_builder as get_model_builder
from .building import list_models as list_models
from .building import weights_class as _weights_class
from .convnext import ConvNeXt as ConvNeXt
from .convnext import convnext_base as convnext_base
from .convnext import convnext_large as convnext_large
from .convnext import convnext_small as convnext_small
from .convnext import convnext_tiny as convnext_tiny
from .densenet import DenseNet as DenseNet
from .densenet import densenet121 as densenet121
from .densenet import densenet161 as densenet161
from .densenet import densenet169 as densenet169
from .densenet import densenet201 as densenet201
from .efficientnet import EfficientNet as EfficientNet
from .efficientnet import efficientnet_b0 as efficientnet_b0
from .efficientnet import efficientnet_b1 as efficientnet_b1
from .efficientnet import efficientnet_b2 as efficientnet_b2
from .efficientnet import efficientnet_b3 as efficientnet_b3
from .efficientnet import efficientnet_b4 as efficientnet_b4
from .efficientnet import efficientnet_b5 as efficientnet_b5
from .efficientnet import efficientnet_b6 as efficientnet_b6
from .efficientnet import efficientnet_b7 as efficientnet_b7
from .efficientnet import efficientnet_v2_l as efficientnet_v2_l
from .efficientnet import efficientnet_v2_m as efficientnet_v2_m
from .efficientnet import efficientnet_v2_s as efficientnet_v2_s
from .googlenet import GoogLeNet as GoogLeNet
from .googlenet import GoogLeNetOutputs as GoogLeNetOutputs
from .googlenet import googlenet as googlenet
from .mobilenetv2 import MobileNetV2 as MobileNetV2
from .mobilenetv2 import mobilenet_v2 as mobilenet_v2
from .mobilenetv3 import MobileNetV3 as MobileNetV3
from .mobilenetv3 import mobilenet_v3_large as mobilenet_v3_large
from .mobilenetv3 import mobilenet_v3_small as mobilenet_v3_small
from .resnet import ResNet as ResNet
from .resnet import resnet18 as resnet18
from .resnet import resnet34 as resnet34
from .resnet import resnet50 as resnet50
from .resnet import resnet101 as resnet101
from .resnet import resnet152 as resnet152
from .resnet import resnext50_32x4d as resnext50_32x4d
from .resnet import resnext101_32x8d as resnext101_32x8d
from .resnet import resnext101_64x4d as resnext101_64x4d
from .resnet import wide_resnet50_2 as wide_resnet50_2
from .resnet import wide_resnet101_2 as wide_resnet101_2
from .squeezenet import SqueezeNet as SqueezeNet
from .squeezenet import squeezenet1_0 as squeezenet1_0
from .squeezenet import squeezenet1_1 as squeezenet1_1
from .unet import UNet as UNet
from .unet import unet as unet
from .vgg import VGG as VGG
from .vgg import vgg11 as vgg11
from .vgg import vgg11_bn as vgg11_bn
from .vgg import vgg13 as vgg13
from .vgg import vgg13_bn as vgg13_bn
from .vgg import vgg16 as vgg16
from .vgg import vgg16_bn as vgg16_bn
from .vgg import vgg19 as vgg19
from .vgg import vgg19_bn as vgg19_bn
from .vision_transformer import VisionTransformer as VisionTransformer
from .vision_transformer import vit_b_16 as vit_b_16
from .vision_transformer import vit_b_32 as vit_b_32
from .vision_transformer import vit_h_14 as vit_h_14
from .vision_transformer import vit_l_16 as vit_l_16
from .vision_transformer import vit_l_32 as vit_l_32

_late = norch.late_submodules(__name__)


def __getattr__(name: str) -> Any:
    return _weights_class(name) if name.endswith("_Weights") else _late(name)
