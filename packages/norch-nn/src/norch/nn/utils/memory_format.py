"""Weights of convolutions whose channels are to lie last in memory."""

from __future__ import annotations

from typing import TypeVar

import norch

from ..convolution import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from ..module import Module

M = TypeVar("M", bound=Module)


def convert_conv2d_weight_memory_format(module: M, memory_format: norch.memory_format) -> M:
    """`module`, in which the weights of every Conv2d and ConvTranspose2d have been laid out in `memory_format`.

    Other parameters stay as they are, unlike with `module.to(memory_format=...)`.
    """
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: M, memory_format: norch.memory_format) -> M:
    """`module`, in which the weights of every Conv3d and ConvTranspose3d have been laid out in `memory_format`.

    Other parameters stay as they are, unlike with `module.to(memory_format=...)`.
    """
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)


def _convert(module: M, kinds: tuple[type[Module], ...], memory_format: norch.memory_format) -> M:
    for part in module.modules():
        if isinstance(part, kinds):
            part.weight.data = part.weight.detach().contiguous(memory_format=memory_format)
    return module
