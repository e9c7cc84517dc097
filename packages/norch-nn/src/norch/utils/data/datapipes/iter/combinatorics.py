"""Pipes under the names and the path that PyTorch has them by."""

from . import Shuffler

ShufflerIterDataPipe = Shuffler
