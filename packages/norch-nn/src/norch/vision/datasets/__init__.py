"""Image data sets, under torchvision's names and in its folders. Files are checked, and never executed."""

from .cifar import CIFAR10, CIFAR100
from .files import DatasetError
from .mnist import KMNIST, MNIST, FashionMNIST
from .vision_dataset import VisionDataset

__all__ = ["CIFAR10", "CIFAR100", "KMNIST", "MNIST", "DatasetError", "FashionMNIST", "VisionDataset"]
