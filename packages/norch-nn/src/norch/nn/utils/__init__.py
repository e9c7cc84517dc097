"""norch.nn.utils: what training does to parameters and gradients, and sequences of different lengths."""

from . import rnn

__all__ = ["rnn"]
