"""Blocks of vision models, boxes, their losses and what is pooled from them, under torchvision's names.

A box is x1, y1, x2, y2, with x1 < x2 and y1 < y2, unless said otherwise.

Arguments that mean the same in every function:

    boxes: (..., 4), the last dim x1, y1, x2, y2, unless said otherwise.
    reduction: "none", "mean" or "sum".
"""

import norch

from .boxes import batched_nms as batched_nms
from .boxes import box_area as box_area
from .boxes import box_convert as box_convert
from .boxes import box_iou as box_iou
from .boxes import clip_boxes_to_image as clip_boxes_to_image
from .boxes import complete_box_iou as complete_box_iou
from .boxes import distance_box_iou as distance_box_iou
from .boxes import generalized_box_iou as generalized_box_iou
from .boxes import masks_to_boxes as masks_to_boxes
from .boxes import nms as nms
from .boxes import remove_small_boxes as remove_small_boxes
from .deform_conv import DeformConv2d as DeformConv2d
from .deform_conv import deform_conv2d as deform_conv2d
from .drop_block import DropBlock2d as DropBlock2d
from .drop_block import DropBlock3d as DropBlock3d
from .drop_block import drop_block2d as drop_block2d
from .drop_block import drop_block3d as drop_block3d
from .feature_pyramid_network import FeaturePyramidNetwork as FeaturePyramidNetwork
from .losses import complete_box_iou_loss as complete_box_iou_loss
from .losses import distance_box_iou_loss as distance_box_iou_loss
from .losses import generalized_box_iou_loss as generalized_box_iou_loss
from .losses import sigmoid_focal_loss as sigmoid_focal_loss
from .misc import MLP as MLP
from .misc import Conv2dNormActivation as Conv2dNormActivation
from .misc import Conv3dNormActivation as Conv3dNormActivation
from .misc import FrozenBatchNorm2d as FrozenBatchNorm2d
from .misc import Permute as Permute
from .misc import SqueezeExcitation as SqueezeExcitation
from .poolers import MultiScaleRoIAlign as MultiScaleRoIAlign
from .ps_roi_align import PSRoIAlign as PSRoIAlign
from .ps_roi_align import ps_roi_align as ps_roi_align
from .ps_roi_pool import PSRoIPool as PSRoIPool
from .ps_roi_pool import ps_roi_pool as ps_roi_pool
from .roi_align import RoIAlign as RoIAlign
from .roi_align import roi_align as roi_align
from .roi_pool import RoIPool as RoIPool
from .roi_pool import roi_pool as roi_pool
from .stochastic_depth import StochasticDepth as StochasticDepth
from .stochastic_depth import stochastic_depth as stochastic_depth

__getattr__ = norch.late_submodules(__name__)
