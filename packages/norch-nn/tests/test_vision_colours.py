"""Transforms of PIL images, arrays and tensors: colours, blurring, affine maps, conversions."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import norch
from norch.vision import transforms
from norch.vision.transforms import functional as F
from norch.vision.transforms.resizing import _resize_bytes

pytestmark = pytest.mark.usefixtures("on_host")

COLOUR = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
GREY = COLOUR[..., 0]


@pytest.fixture
def image():
    return pytest.importorskip("PIL.Image")


def planes(array):
    return norch.from_numpy(np.ascontiguousarray(array[None] if array.ndim == 2 else array.transpose(2, 0, 1)))


RANDOM = {
    "CenterCrop": ((5,), {}),
    "ColorJitter": ((0.4, 0.3, 0.2, 0.1), {}),
    "GaussianBlur": ((3,), {}),
    "Grayscale": ((3,), {}),
    "Pad": ((2,), {"fill": 3}),
    "RandomAffine": ((30, (0.1, 0.2), (0.8, 1.2), 10), {"interpolation": transforms.InterpolationMode.BILINEAR}),
    "RandomCrop": ((6, 1), {}),
    "RandomGrayscale": ((1.0,), {}),
    "RandomHorizontalFlip": ((1.0,), {}),
    "RandomResizedCrop": ((7,), {}),
    "RandomRotation": ((40,), {"expand": True}),
    "Resize": (((5, 30),), {}),
}


@pytest.mark.parametrize("name", RANDOM)
def test_a_picture_gives_a_picture_with_the_pixels_of_the_array(image, name):
    args, kwargs = RANDOM[name]
    step, found = getattr(transforms, name)(*args, **kwargs), []
    for kind in (image.fromarray(COLOUR), COLOUR):
        norch.manual_seed(4)
        found.append(step(kind))
    assert isinstance(found[0], image.Image)
    assert isinstance(found[1], np.ndarray)
    assert np.array_equal(np.asarray(found[0]), found[1])


@pytest.mark.parametrize("size", [(5, 12), (9, 30), (4, 5), (20, 31)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "box", "hamming", "lanczos"])
def test_bytes_are_resized_as_pillow_does(image, monkeypatch, size, mode):
    expected = np.asarray(image.fromarray(COLOUR).resize(size[::-1], getattr(image.Resampling, mode.upper())))
    assert np.array_equal(F.resize(COLOUR, size, mode), expected)
    own = _resize_bytes(COLOUR, *size, mode)
    assert np.abs(own.astype(int) - expected).max() <= (0 if 9 in size or 12 in size else 1)


def test_bytes_are_resized_without_pillow(monkeypatch):
    expected = F.resize(GREY, (5, 12))
    for name in [name for name in sys.modules if name.partition(".")[0] == "PIL"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "PIL.Image", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert np.array_equal(F.resize(GREY, (5, 12)), expected)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"adjust_hue\(\) needs Pillow .* pip install norch-nn\[vision\]"):
        F.adjust_hue(COLOUR, 0.1)


def test_colours_of_tensors():
    half = norch.full((3, 2, 2), 0.5)
    assert (F.adjust_brightness(half, 1.5) == 0.75).all()
    assert (F.adjust_brightness(half, 3.0) == 1).all()
    assert (F.adjust_brightness(planes(COLOUR), 0.0) == 0).all()
    assert F.adjust_brightness(planes(COLOUR), 1.0).tolist() == planes(COLOUR).tolist()
    two = norch.tensor([[[0.2, 0.6]]])
    norch.testing.assert_close(F.adjust_contrast(two, 0.5), norch.tensor([[[0.3, 0.5]]]))
    red = norch.tensor([1.0, 0.0, 0.0]).view(3, 1, 1)
    norch.testing.assert_close(F.rgb_to_grayscale(red), norch.tensor([[[0.2989]]]))
    norch.testing.assert_close(F.adjust_saturation(red, 0.0).flatten(), norch.full((3,), 0.2989))
    norch.testing.assert_close(F.adjust_hue(red, 1 / 3).flatten(), norch.tensor([0.0, 1.0, 0.0]), atol=1e-6, rtol=0)
    norch.testing.assert_close(F.adjust_hue(red, -1 / 3).flatten(), norch.tensor([0.0, 0.0, 1.0]), atol=1e-6, rtol=0)
    norch.testing.assert_close(F.adjust_gamma(half, 2.0), norch.full((3, 2, 2), 0.25))
    assert F.rgb_to_grayscale(half, 3).shape == half.shape
    grey = norch.ones(1, 2, 2)
    assert F.adjust_hue(grey, 0.3) is F.adjust_saturation(grey, 0.3) is grey


def test_factors_out_of_range():
    with pytest.raises(ValueError, match="hue_factor must be from -0.5 to 0.5, got 0.6"):
        F.adjust_hue(planes(COLOUR), 0.6)
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        F.adjust_contrast(planes(COLOUR), -1)
    with pytest.raises(norch.ShapeError, match="expected 1 or 3 channels"):
        F.adjust_brightness(norch.zeros(2, 3, 3), 1.0)
    with pytest.raises(norch.DTypeError, match="expected an array of bytes, got float64"):
        F.adjust_brightness(COLOUR / 255, 1.0)
    for bad in (dict(brightness=-1), dict(hue=0.6), dict(contrast=(0.5, 0.2)), dict(saturation=(1, 2, 3))):
        with pytest.raises(ValueError, match="ColorJitter"):
            transforms.ColorJitter(**bad)


def test_color_jitter_draws_within_its_bounds():
    norch.manual_seed(0)
    jitter, grey = transforms.ColorJitter(brightness=0.5), norch.full((1, 1, 1), 0.5)
    found = [jitter(grey).item() for _ in range(300)]
    assert 0.25 <= min(found) < 0.27
    assert 0.73 < max(found) <= 0.75
    assert transforms.ColorJitter()(grey) is grey
    assert transforms.ColorJitter(2, hue=0.2).brightness == (0.0, 3.0)
    shown = "ColorJitter(brightness=(0.5, 1.5), contrast=None, saturation=None, hue=(-0.1, 0.1))"
    assert repr(transforms.ColorJitter(0.5, hue=0.1)) == shown


def test_gaussian_blur():
    point = norch.zeros(1, 9, 9)
    point[0, 4, 4] = 1
    out = F.gaussian_blur(point, 5, 1.0)
    bell = np.exp(-(np.arange(-2, 3) ** 2) / 2)
    bell /= bell.sum()
    assert np.allclose(out[0, 2:7, 2:7].numpy(), np.outer(bell, bell), atol=1e-7)
    assert out.sum().item() == pytest.approx(1)
    flat = norch.full((2, 3, 6, 7), 9, dtype=norch.uint8)
    assert (F.gaussian_blur(flat, (3, 5), (0.5, 2.0)) == 9).all()
    assert F.gaussian_blur(GREY, 3).dtype == np.uint8
    for bad in (2, (3, 4), 0, 1.5, (1, 3, 5)):
        with pytest.raises((ValueError, TypeError)):
            transforms.GaussianBlur(bad)
    with pytest.raises(ValueError, match="sigma must be positive"):
        transforms.GaussianBlur(3, (0, 1))
    assert repr(transforms.GaussianBlur(3)) == "GaussianBlur(kernel_size=(3, 3), sigma=(0.1, 2.0))"


def test_affine():
    x = planes(GREY)
    assert F.affine(x, 0, (0, 0), 1.0, 0.0).tolist() == x.tolist()
    moved = F.affine(x, 0, (2, 1), 1.0, 0.0, fill=7)
    assert moved[0, 1:, 2:].tolist() == x[0, :-1, :-2].tolist()
    assert (moved[0, 0] == 7).all()
    square = x[..., :9]
    assert F.affine(square, 90, (0, 0), 1.0, 0.0).tolist() == square.rot90(-1, (1, 2)).tolist()
    doubled = F.affine(norch.ones(1, 4, 4), 0, (0, 0), 0.5, 0.0, "bilinear")
    assert doubled[0, 1:3, 1:3].tolist() == [[1, 1], [1, 1]]
    assert doubled.sum() == 4
    with pytest.raises(ValueError, match="positive scale"):
        F.affine(x, 0, (0, 0), 0.0, 0.0)
    with pytest.raises(ValueError, match="one or two of shear"):
        F.affine(x, 0, (0, 0), 1.0, (1, 2, 3))


def test_random_affine():
    norch.manual_seed(0)
    step = transforms.RandomAffine(0, translate=(0.5, 0), fill=5)
    rows = {tuple(step(planes(GREY))[0, 0].tolist()) for _ in range(50)}
    assert 5 < len(rows) <= 13
    assert repr(transforms.RandomAffine(10, scale=(0.5, 2))) == "RandomAffine(degrees=[-10.0, 10.0], scale=(0.5, 2))"
    for bad in (dict(degrees=-1), dict(degrees=1, translate=(2, 0)), dict(degrees=1, scale=(0, 1)), dict(degrees=(1,))):
        with pytest.raises(ValueError, match="RandomAffine"):
            transforms.RandomAffine(**bad)


def test_bilinear_rotation_of_tensors_lets_gradients_through():
    x = norch.ones(1, 6, 6, requires_grad=True)
    F.rotate(x, 30, "bilinear", fill=0.5).sum().backward()
    assert 0 < x.grad.min() < x.grad.max() < 1.1


def test_pictures_and_tensors(image):
    for mode in ("RGB", "L", "P", "1", "RGBA", "CMYK", "I", "F"):
        picture = image.fromarray(COLOUR).convert(mode)
        turned = F.hflip(picture)
        assert turned.mode == mode
        assert np.array_equal(np.asarray(turned), np.asarray(picture)[:, ::-1])
        assert F.to_tensor(picture).dtype in (norch.float32, norch.int32)
    assert F.to_tensor(image.fromarray(GREY > 99)).max() == 1
    back = transforms.ToPILImage()(transforms.PILToTensor()(image.fromarray(COLOUR)))
    assert np.array_equal(np.asarray(back), COLOUR)
    assert F.to_pil_image(norch.full((1, 2, 2), 0.5)).getpixel((0, 0)) == 127
    assert transforms.ToPILImage("HSV")(COLOUR).mode == "HSV"
    assert (repr(transforms.ToPILImage()), repr(transforms.PILToTensor())) == ("ToPILImage()", "PILToTensor()")
    for bad in (norch.zeros(5, 2, 2), np.zeros((2, 2, 5))):
        with pytest.raises(norch.ShapeError, match="1 to 4 channels"):
            F.to_pil_image(bad)
    with pytest.raises(TypeError, match="got a PIL image"):
        F.to_pil_image(back)


def test_five_and_ten_crops():
    crops = transforms.FiveCrop((2, 3))(GREY)
    assert [crop.shape for crop in crops] == [(2, 3)] * 5
    assert np.array_equal(crops[3], GREY[-2:, -3:])
    ten = transforms.TenCrop(2, vertical_flip=True)(GREY)
    assert np.array_equal(ten[5], GREY[::-1][:2, :2])
    with pytest.raises(ValueError, match="smaller than the size"):
        F.five_crop(GREY, 10)
    assert repr(transforms.TenCrop(2)) == "TenCrop(size=(2, 2), vertical_flip=False)"


def test_random_choice_and_order():
    norch.manual_seed(0)
    choice = transforms.RandomChoice([lambda x: 0, lambda x: 1], p=[1, 3])
    assert 60 < sum(choice(GREY) for _ in range(100)) < 90
    order = transforms.RandomOrder([lambda x: [*x, 1], lambda x: [*x, 2]])
    assert {tuple(order([])) for _ in range(20)} == {(1, 2), (2, 1)}
    with pytest.raises(ValueError, match="a weight for each"):
        transforms.RandomChoice([len], p=[1, 2])
