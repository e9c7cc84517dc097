"""Parts of detectors under torchvision's names: anchors, and images of several sizes in one batch.

Arguments that mean the same in every part:

    dtype, device: of what is made.
"""

from .anchor_utils import AnchorGenerator as AnchorGenerator
from .anchor_utils import DefaultBoxGenerator as DefaultBoxGenerator
from .image_list import ImageList as ImageList
