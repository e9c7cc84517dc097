"""torchvision for the tests beside it, whose kernels may not load."""

import importlib
from types import ModuleType

import pytest


def import_torchvision(name: str = "torchvision") -> ModuleType:
    """The module of that name; the test file is skipped where torchvision or PyTorch is missing.

    The wheel of the package index is built for CUDA: beside a PyTorch without it the kernels do not load, and the
    import ends at two ops that they would have defined. Declared, all that is Python is there.
    """
    torch = pytest.importorskip("torch")
    try:
        return pytest.importorskip(name)
    except RuntimeError:
        for op in ("nms", "qnms"):
            torch.library.define(f"torchvision::{op}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return importlib.import_module(name)
