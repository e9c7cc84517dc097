"""Collectives that gradients pass through, under PyTorch's path."""

from . import functional as functional
