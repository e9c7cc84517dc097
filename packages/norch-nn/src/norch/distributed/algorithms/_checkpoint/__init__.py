"""Modules whose activations are computed again, under PyTorch's path."""

import norch

__getattr__ = norch.late_submodules(__name__)
