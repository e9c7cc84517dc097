"""Blurred images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import norch
from norch import nn
from norch.nn.layer import layer
from norch.utils.data import sample_rng as generator

from .conversion import pil_to_tensor
from .images import Image, as_image, as_picture, is_picture


def _kernel_size(kernel_size: Any) -> tuple[int, int]:
    """(x, y)."""
    sizes = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size) * (2 // len(kernel_size))
    if len(sizes) != 2 or any(not isinstance(n, int) or n <= 0 or n % 2 == 0 for n in sizes):
        raise ValueError(f"GaussianBlur: kernel_size must be one or two odd positive numbers, got {kernel_size!r}")
    return sizes


def _bell(size: int, sigma: float, like: norch.Tensor) -> norch.Tensor:
    half = (size - 1) * 0.5
    places = norch.linspace(-half, half, size, dtype=like.dtype, device=like.device)
    weights = (-0.5 * (places / sigma) ** 2).exp()
    return weights / weights.sum()


def gaussian_blur(img: Image, kernel_size: int | Sequence[int], sigma: Any = None) -> Image:
    """The image with a bell of `kernel_size` (x, y) pixels over each pixel, mirrored at the edges.

    sigma: the bell's standard deviation, one or (x, y); by default 0.3 * ((size - 1) / 2 - 1) + 0.8. Raises ValueError
    for even sizes and a sigma that is not positive, ShapeError for an image that is no larger than half a bell.
    """
    img = as_image(img, "gaussian_blur")
    sizes = _kernel_size(kernel_size)
    if sigma is None:
        sigma = [n * 0.15 + 0.35 for n in sizes]
    given = [sigma] if isinstance(sigma, int | float) else sigma
    sigmas = tuple(float(s) for s in given) * (2 // len(given))
    if min(sigmas) <= 0:
        raise ValueError(f"gaussian_blur: sigma must be positive, got {sigma!r}")
    image = img if isinstance(img, norch.Tensor) else pil_to_tensor(img)
    floats = image if image.is_floating_point() else image.to(norch.float32)
    planes = floats.reshape(-1, 1, *floats.shape[-2:])
    across, down = (_bell(n, s, floats) for n, s in zip(sizes, sigmas))
    x, y = sizes[0] // 2, sizes[1] // 2
    padded = norch.pad(planes, (x, x, y, y), "reflect")
    kernel = (down.unsqueeze(1) * across.unsqueeze(0)).reshape(1, 1, sizes[1], sizes[0])
    out = norch.conv2d(padded, kernel).reshape(image.shape)
    out = out if image.is_floating_point() else out.round().to(image.dtype)
    if isinstance(img, norch.Tensor):
        return out
    array = np.ascontiguousarray(np.moveaxis(out.numpy(), 0, -1)).reshape(np.asarray(img).shape)
    return as_picture(array, img) if is_picture(img) else array


@layer()
class GaussianBlur(nn.Module):
    """`gaussian_blur` with a standard deviation drawn between the two of `sigma`, or that one.

    kernel_size: as there.
    """

    kernel_size: Any
    sigma: Any = (0.1, 2.0)

    def __post_init__(self) -> None:
        self.kernel_size = _kernel_size(self.kernel_size)
        self.sigma = (self.sigma,) * 2 if isinstance(self.sigma, int | float) else tuple(self.sigma)
        if len(self.sigma) != 2 or not 0 < self.sigma[0] <= self.sigma[1]:
            raise ValueError(f"GaussianBlur: sigma must be positive, one number or (low, high), got {self.sigma!r}")

    def forward(self, img: Image) -> Image:
        return gaussian_blur(img, self.kernel_size, float(generator().uniform(*self.sigma)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kernel_size={self.kernel_size}, sigma={self.sigma})"
