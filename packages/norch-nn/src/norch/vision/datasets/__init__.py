"""Image data sets, under torchvision's names and in its folders. Files are checked, and never executed."""

import norch

from .cifar import CIFAR10, CIFAR100
from .fakedata import FakeData
from .files import DatasetError
from .folder import DatasetFolder, ImageFolder
from .mnist import KMNIST, MNIST, FashionMNIST
from .vision_dataset import VisionDataset

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "KMNIST",
    "MNIST",
    "DatasetError",
    "DatasetFolder",
    "FakeData",
    "FashionMNIST",
    "ImageFolder",
    "VisionDataset",
]

__getattr__ = norch.late_submodules(__name__)
