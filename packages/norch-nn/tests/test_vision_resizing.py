"""Images that are resized and rotated."""

from __future__ import annotations

import numpy as np
import pytest
from vision_images import COLOUR, GREY, both, planes

import norch
from norch.vision import transforms
from norch.vision.transforms import functional as F

pytestmark = pytest.mark.usefixtures("on_host")


def weights_by_hand(old, new):
    """How much of each old pixel a triangle as wide as the scale gives to each new one, pixel by pixel."""
    scale = old / new
    spread = max(scale, 1)
    out = np.zeros((new, old))
    for i in range(new):
        for j in range(old):
            out[i, j] = max(0, 1 - abs(j + 0.5 - (i + 0.5) * scale) / spread)
        out[i] /= out[i].sum()
    return out


@pytest.mark.parametrize("size", [(3, 4), (10, 9), (2, 12), (5, 3)])
def test_resize_bilinear(size):
    expected = np.einsum("ih,hwc,jw->ijc", weights_by_hand(5, size[0]), COLOUR, weights_by_hand(6, size[1]))
    tensor = F.resize(planes(COLOUR).to(norch.float64), size)
    assert np.allclose(tensor.numpy(), expected.transpose(2, 0, 1), atol=1e-10)
    floats = F.resize(COLOUR.astype(np.float32), size)
    assert floats.dtype == np.float32
    assert np.allclose(floats, expected, atol=1e-3)
    out = F.resize(COLOUR, size)
    assert out.dtype == np.uint8
    assert np.abs(out - expected).max() <= 1.0001  # rounded after each of two steps
    assert np.abs(F.resize(planes(COLOUR), size).numpy() - expected.transpose(2, 0, 1)).max() <= 0.5001
    grey = F.resize(COLOUR[..., 0], size)
    assert np.array_equal(grey, out[..., 0])


def test_resize_sizes():
    assert F.resize(GREY, 10).shape == (10, 12)
    assert F.resize(GREY.T, [10]).shape == (12, 10)
    assert F.resize(GREY, 10, max_size=11).shape == (9, 11)
    assert F.resize(GREY, (5, 6)) is GREY
    assert transforms.Resize(3)(planes(COLOUR)).shape == (3, 3, 3)
    assert repr(transforms.Resize(3)) == "Resize(size=3, interpolation=bilinear, max_size=None, antialias=True)"
    for bad in (0, (1, 2, 3), "x"):
        with pytest.raises(ValueError, match="size must be"):
            transforms.Resize(bad)
    with pytest.raises(ValueError, match="max_size"):
        F.resize(GREY, 10, max_size=10)
    with pytest.raises(ValueError, match="max_size"):
        F.resize(GREY, (10, 10), max_size=20)
    with pytest.raises(ValueError, match="one of nearest"):
        transforms.Resize(3, "spline")
    with pytest.raises(ValueError, match="lanczos interpolation is there for images that are no tensors"):
        F.resize(planes(GREY), 3, "lanczos")
    with pytest.raises(ValueError, match="antialias=True only"):
        transforms.Resize(3, "bicubic", antialias=False)


@pytest.mark.parametrize("size", [(3, 4), (10, 9), (2, 12), (7, 7)])
@pytest.mark.parametrize(
    ("mode", "antialias"),
    [("nearest", True), ("nearest-exact", True), ("bilinear", True), ("bilinear", False), ("bicubic", True)],
)
def test_resize_is_pytorchs(size, mode, antialias):
    torch = pytest.importorskip("torch")
    image = COLOUR.astype(np.float32).transpose(2, 0, 1)
    smooth = antialias and mode.startswith("bi")
    expected = torch.nn.functional.interpolate(torch.from_numpy(image.copy())[None], size, mode=mode, antialias=smooth)
    out = F.resize(norch.tensor(image.tolist()), size, transforms.InterpolationMode(mode), antialias=antialias)
    assert np.allclose(out.cpu().numpy(), expected[0].numpy(), atol=2e-4)


def test_resize_lets_gradients_through():
    image = norch.ones(1, 4, 4).requires_grad_()
    F.resize(image, 2).sum().backward()
    assert image.grad.sum().item() == pytest.approx(4)


def test_rotate_by_right_angles():
    for quarter in range(5):
        expected = np.rot90(COLOUR[:5, :5], quarter)
        assert np.array_equal(both(lambda image, a=90 * quarter: F.rotate(image, a), COLOUR[:5, :5]), expected)
        grown = both(lambda image, a=90 * quarter: F.rotate(image, a, expand=True), COLOUR)
        assert np.array_equal(grown, np.rot90(COLOUR, quarter))
    assert both(lambda image: F.rotate(image, 180, center=(1, 1), fill=7), GREY)[:3, :3].tolist() == [
        [7, 6, 7],
        [1, 0, 7],
        [7, 7, 7],
    ]
    assert F.rotate(COLOUR, 45, fill=(1, 2, 3))[0, 0].tolist() == [1, 2, 3]
    assert F.rotate(GREY, 45, expand=True).shape == (9, 8)
    with pytest.raises(ValueError, match="one of nearest, bilinear, got 'bicubic'"):
        F.rotate(planes(GREY), 10, "bicubic")


@pytest.mark.parametrize("angle", [17, -100, 200.5])
def test_rotate_is_pytorchs(angle):
    torch = pytest.importorskip("torch")
    image = COLOUR.transpose(2, 0, 1).astype(np.float32) + 1
    h, w = image.shape[1:]
    cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    theta = torch.tensor([[[cos, -sin * h / w, 0.0], [sin * w / h, cos, 0.0]]], dtype=torch.float32)
    grid = torch.nn.functional.affine_grid(theta, (1, 3, h, w), align_corners=False)
    expected = torch.nn.functional.grid_sample(torch.tensor(image)[None], grid, "nearest", align_corners=False)[0]
    assert np.array_equal(F.rotate(norch.tensor(image.tolist()), angle).cpu().numpy(), expected.numpy())


def test_random_rotation():
    norch.manual_seed(0)
    turn = transforms.RandomRotation(30, fill=1)
    assert repr(turn) == "RandomRotation(degrees=[-30.0, 30.0], interpolation=nearest, expand=False, fill=1)"
    assert turn(GREY).tolist() != turn(GREY).tolist()
    assert np.array_equal(transforms.RandomRotation((180, 180))(GREY), GREY[::-1, ::-1])
    for bad in (-1, (1, 2, 3)):
        with pytest.raises(ValueError, match="degrees"):
            transforms.RandomRotation(bad)
