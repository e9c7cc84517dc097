"""norch.vision.transforms beside torchvision's, on the same PIL images and tensors."""

from __future__ import annotations

import numpy as np
import pytest
from importing_torchvision import import_torchvision

import norch
from norch.vision.transforms import functional as F

pytestmark = pytest.mark.usefixtures("on_host")

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")
TF = import_torchvision("torchvision.transforms.functional")

RANDOM = np.random.default_rng(0).integers(0, 256, (37, 52, 3), dtype=np.uint8)
SLOPE = np.add.outer(np.arange(37) * 4, np.arange(52) * 2)[..., None] + np.arange(3) * 40
SLOPE = SLOPE.clip(0, 255).astype(np.uint8)
IMAGES = {"random": RANDOM, "slope": SLOPE, "grey": RANDOM[..., 0]}

EXACT = {
    "hflip": lambda M, x: M.hflip(x),
    "vflip": lambda M, x: M.vflip(x),
    "crop": lambda M, x: M.crop(x, -3, 5, 20, 60),
    "center_crop": lambda M, x: M.center_crop(x, [20, 61]),
    "pad": lambda M, x: M.pad(x, [1, 2, 3, 4], 7),
    "pad reflect": lambda M, x: M.pad(x, 5, padding_mode="reflect"),
    "five_crop": lambda M, x: M.five_crop(x, [12, 9])[4],
    "ten_crop": lambda M, x: M.ten_crop(x, 11)[7],
    "rotate": lambda M, x: M.rotate(x, 33, fill=[9]),
    "rotate bilinear": lambda M, x: M.rotate(x, -50.5, M.InterpolationMode.BILINEAR),
    "rotate expand": lambda M, x: M.rotate(x, 20, expand=True),
    "affine": lambda M, x: M.affine(x, 21, [4, -3], 1.2, [5.0, 3.0], fill=[8]),
    "affine bilinear": lambda M, x: M.affine(x, -21, [4, 3], 0.7, [-5.0], M.InterpolationMode.BILINEAR),
    "affine center": lambda M, x: M.affine(x, 10, [0, 0], 1.0, 0.0, center=[3, 4]),
    "resize": lambda M, x: M.resize(x, [20, 71]),
    "resize side": lambda M, x: M.resize(x, 15),
    "resize bicubic": lambda M, x: M.resize(x, [70, 19], M.InterpolationMode.BICUBIC),
    "resize nearest": lambda M, x: M.resize(x, [23, 90], M.InterpolationMode.NEAREST),
    "brightness": lambda M, x: M.adjust_brightness(x, 0.63),
    "brighter": lambda M, x: M.adjust_brightness(x, 1.7),
    "contrast": lambda M, x: M.adjust_contrast(x, 0.4),
    "more contrast": lambda M, x: M.adjust_contrast(x, 1.9),
    "saturation": lambda M, x: M.adjust_saturation(x, 0.3),
    "more saturation": lambda M, x: M.adjust_saturation(x, 2.5),
    "hue": lambda M, x: M.adjust_hue(x, 0.23),
    "hue back": lambda M, x: M.adjust_hue(x, -0.4),
    "gamma": lambda M, x: M.adjust_gamma(x, 1.8, 0.9),
    "grey": lambda M, x: M.rgb_to_grayscale(x),
    "blur": lambda M, x: M.gaussian_blur(x, [7, 5], [1.3, 0.6]),
    "blur default": lambda M, x: M.gaussian_blur(x, 9),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("image", IMAGES)
def test_pictures(name, image):
    picture = Image.fromarray(IMAGES[image])
    expected, out = EXACT[name](TF, picture), EXACT[name](F, picture)
    assert isinstance(out, Image.Image)
    assert out.mode == expected.mode
    assert np.array_equal(np.asarray(out), np.asarray(expected))


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_tensors(name, image, dtype):
    array = IMAGES[image]
    array = np.ascontiguousarray(array[None] if array.ndim == 2 else array.transpose(2, 0, 1))
    array = array if dtype == "uint8" else array.astype(np.float32) / 255
    expected = EXACT[name](TF, torch.tensor(array)).numpy()
    out = EXACT[name](F, norch.tensor(array)).numpy()
    assert out.shape == expected.shape
    far = np.abs(out.astype(np.float64) - expected)
    if dtype == "float32":
        assert (far > 2e-5).mean() <= (0.001 if "affine" in name or "rotate" in name else 0)
    else:  # a sum that is half a level may be rounded either way
        assert far.max() <= (0 if "nearest" in name else 1) or "affine" in name
        assert (far > 0).mean() <= 0.002


@pytest.mark.parametrize("mode", [None, "L", "CMYK", "1", "P", "I", "F", "RGBA", "LA"])
def test_conversions(mode):
    picture = Image.fromarray(RANDOM) if mode is None else Image.fromarray(RANDOM).convert(mode)
    expected, out = TF.to_tensor(picture), F.to_tensor(picture)
    assert str(out.dtype).split(".")[1] == str(expected.dtype).split(".")[1]
    assert np.array_equal(out.numpy(), expected.numpy())
    assert np.array_equal(F.pil_to_tensor(picture).numpy(), TF.pil_to_tensor(picture).numpy())
    turned = F.hflip(picture)
    assert (turned.mode, turned.getpalette()) == (picture.mode, picture.getpalette())
    assert np.array_equal(np.asarray(turned), np.asarray(TF.hflip(picture)))


def test_to_pil_image():
    for array in (RANDOM, RANDOM[..., 0], RANDOM[..., :2], RANDOM[..., :1].astype(np.int32)):
        expected, out = TF.to_pil_image(array), F.to_pil_image(array)
        assert (out.mode, out.tobytes()) == (expected.mode, expected.tobytes())
    floats = np.random.default_rng(1).random((3, 5, 6), dtype=np.float32)
    assert F.to_pil_image(norch.tensor(floats)).tobytes() == TF.to_pil_image(torch.tensor(floats)).tobytes()
    assert F.to_pil_image(RANDOM, "YCbCr").mode == "YCbCr"
