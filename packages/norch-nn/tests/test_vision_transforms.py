"""The transforms of images, on arrays and on tensors."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from vision_images import COLOUR, GREY, both, planes

import norch
from norch import nn
from norch.vision import transforms
from norch.vision.transforms import functional as F

pytestmark = pytest.mark.usefixtures("on_host")


def test_to_tensor():
    out = transforms.ToTensor()(COLOUR)
    assert (out.dtype, tuple(out.shape)) == (norch.float32, (3, 5, 6))
    assert np.array_equal(out.numpy(), COLOUR.transpose(2, 0, 1).astype(np.float32) / np.float32(255))
    assert out.is_contiguous()
    assert F.to_tensor(GREY).shape == (1, 5, 6)
    assert np.array_equal(F.to_tensor(GREY[:, ::-1]).numpy()[0] * 255, GREY[:, ::-1])
    floats = F.to_tensor(COLOUR.astype(np.float64))
    assert floats.dtype is norch.float64
    assert floats.max() == COLOUR.max()
    assert F.to_tensor(GREY > 3).dtype is norch.bool
    copied = F.to_tensor(GREY.astype(np.float32))
    assert copied.shape == (1, 5, 6)
    assert transforms.ToTensor()(7).item() == 7
    assert transforms.ToTensor()([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert repr(transforms.ToTensor()) == "ToTensor()"
    with pytest.raises(norch.ShapeError, match=r"\(H, W\) or \(H, W, C\), got \(3,\)"):
        F.to_tensor(np.zeros(3))
    with pytest.raises(TypeError, match="got a tensor"):
        F.to_tensor(norch.zeros(3, 3))
    with pytest.raises(TypeError, match="got str"):
        F.to_tensor("cat.png")


def test_to_tensor_gives_the_default_dtype():
    norch.set_default_dtype(norch.float64)
    try:
        out = F.to_tensor(GREY)
        assert out.dtype is norch.float64
        assert np.array_equal(out.numpy()[0], GREY / 255)
    finally:
        norch.set_default_dtype(norch.float32)


def test_sizes_of_images():
    for image, channels in ((COLOUR, 3), (GREY, 1), (planes(COLOUR), 3), (norch.zeros(2, 3, 5, 6), 3)):
        assert F.get_dimensions(image) == [channels, 5, 6]
        assert F.get_image_size(image) == [6, 5]
        assert F.get_image_num_channels(image) == channels


def test_an_object_with_the_array_interface_is_an_image():
    class Picture:
        __array_interface__ = COLOUR.__array_interface__

    assert np.array_equal(F.hflip(Picture()), COLOUR[:, ::-1])
    assert F.to_tensor(Picture()).shape == (3, 5, 6)


def test_normalize():
    image = norch.arange(12, dtype=norch.float32).reshape(3, 2, 2) / 10
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)
    normalize = transforms.Normalize(mean, std)
    expected = (image.cpu().numpy() - np.float32(mean)[:, None, None]) / np.float32(std)[:, None, None]
    before = image.tolist()
    assert np.array_equal(normalize(image).cpu().numpy(), expected)
    assert np.array_equal(normalize(image[None].expand(2, -1, -1, -1))[1].cpu().numpy(), expected)
    assert image.tolist() == before
    assert F.normalize(image, mean, std, inplace=True) is image
    assert np.array_equal(image.cpu().numpy(), expected)
    assert repr(normalize) == "Normalize(mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))"
    assert F.normalize(norch.ones(3, 1, 1, dtype=norch.float64), [0.5], [0.5]).flatten().tolist() == [1, 1, 1]
    with pytest.raises(norch.DTypeError, match="uint8"):
        normalize(planes(COLOUR))
    with pytest.raises(TypeError, match="ToTensor"):
        normalize(COLOUR)
    with pytest.raises(norch.ShapeError, match=r"3 values of mean for the channels of an image \(2, 4, 4\)"):
        normalize(norch.zeros(2, 4, 4))
    with pytest.raises(norch.ShapeError, match=r"\(..., C, H, W\)"):
        normalize(norch.zeros(4, 4))
    with pytest.raises(ValueError, match="zero"):
        F.normalize(image, mean, (1, 0, 1))


def test_convert_image_dtype():
    bytes_ = norch.tensor([0, 1, 127, 255], dtype=norch.uint8)
    floats = F.convert_image_dtype(bytes_)
    assert np.array_equal(floats.cpu().numpy(), np.float32([0, 1, 127, 255]) / np.float32(255))
    assert F.convert_image_dtype(floats, norch.uint8).tolist() == bytes_.tolist()
    assert F.convert_image_dtype(bytes_, norch.int32).tolist() == [0, 1 << 23, 127 << 23, 255 << 23]
    assert F.convert_image_dtype(F.convert_image_dtype(bytes_, norch.int32), norch.uint8).tolist() == bytes_.tolist()
    assert F.convert_image_dtype(bytes_, norch.uint8) is bytes_
    assert transforms.ConvertImageDtype(norch.float64)(bytes_).dtype is norch.float64
    assert F.convert_image_dtype(floats, norch.float16).dtype is norch.float16
    with pytest.raises(norch.DTypeError, match="too coarse"):
        F.convert_image_dtype(floats, norch.int32)
    with pytest.raises(norch.DTypeError, match="bool"):
        F.convert_image_dtype(bytes_, norch.bool)
    with pytest.raises(TypeError, match="ndarray"):
        F.convert_image_dtype(GREY, norch.float32)


def test_compose_lambda_reshape():
    steps = transforms.Compose([transforms.ToTensor(), transforms.Reshape((-1,)), transforms.Lambda(lambda x: x * 255)])
    assert steps(GREY).tolist() == pytest.approx(list(range(30)), rel=1e-6)
    assert repr(steps) == "Compose(\n    ToTensor()\n    Reshape(shape=(-1,))\n    Lambda()\n)"
    assert transforms.Sequential([])(GREY) is GREY
    with pytest.raises(TypeError, match="got int"):
        transforms.Lambda(3)
    assert nn.Sequential(transforms.CenterCrop(2), transforms.Pad(1))(GREY).shape == (4, 4)


@pytest.mark.parametrize("array", [GREY, COLOUR])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("padding", [2, (1,), (1, 3), (0, 1, 2, 3), (-1, 2, 0, -2)])
def test_pad(array, mode, padding):
    sides = [padding] if isinstance(padding, int) else list(padding)
    left, top, right, bottom = (sides * 4)[:4] if len(sides) < 4 else sides
    wide = np.pad(
        array, [(max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0))] + [(0, 0)] * (array.ndim - 2), mode
    )
    expected = wide[max(-top, 0) : len(wide) - max(-bottom, 0), max(-left, 0) : wide.shape[1] - max(-right, 0)]
    out = both(lambda image: F.pad(image, padding, padding_mode=mode), array)
    assert np.array_equal(out, expected)
    assert np.array_equal(transforms.Pad(padding, 0, mode)(array), expected)


def test_pad_fill_and_errors():
    assert both(lambda image: F.pad(image, 1, 9), GREY)[0].tolist() == [9] * 8
    assert F.pad(COLOUR, 1, (1, 2, 3))[0, 0].tolist() == [1, 2, 3]
    assert repr(transforms.Pad((1, 2), 3, "edge")) == "Pad(padding=(1, 2), fill=3, padding_mode=edge)"
    for bad in ((1, 2, 3), 1.5, "1"):
        with pytest.raises(ValueError, match="padding must be"):
            transforms.Pad(bad)
    with pytest.raises(ValueError, match="padding_mode must be one of"):
        transforms.Pad(1, padding_mode="wrap")
    with pytest.raises(norch.ShapeError, match="cuts off more"):
        F.pad(GREY, -3)
    for image in (GREY, planes(GREY)):
        with pytest.raises(norch.ShapeError, match="reflect"):
            F.pad(image, (0, 5), padding_mode="reflect")


def test_crops():
    assert both(lambda image: F.crop(image, 1, 2, 2, 3), GREY).tolist() == [[8, 9, 10], [14, 15, 16]]
    assert both(lambda image: F.crop(image, 4, 5, 2, 2), GREY).tolist() == [[29, 0], [0, 0]]
    assert both(lambda image: F.crop(image, -1, -1, 2, 2), GREY).tolist() == [[0, 0], [0, 0]]
    assert both(transforms.CenterCrop((1, 2)), GREY).tolist() == [[14, 15]]
    assert both(transforms.CenterCrop(7), GREY).shape == (7, 7)
    assert np.array_equal(F.center_crop(GREY, (7, 6))[1:6], GREY)
    assert repr(transforms.CenterCrop(3)) == "CenterCrop(size=(3, 3))"
    for bad in (0, (1, 2, 3), "3", (2.0, 3)):
        with pytest.raises(ValueError, match="size must be"):
            transforms.CenterCrop(bad)


def test_flips():
    assert np.array_equal(both(F.hflip, COLOUR), COLOUR[:, ::-1])
    assert np.array_equal(both(F.vflip, COLOUR), COLOUR[::-1])
    always, never = transforms.RandomHorizontalFlip(1), transforms.RandomHorizontalFlip(0)
    assert np.array_equal(always(GREY), GREY[:, ::-1])
    assert never(GREY) is GREY
    assert np.array_equal(transforms.RandomVerticalFlip(1.0)(GREY), GREY[::-1])
    assert repr(transforms.RandomVerticalFlip(0.25)) == "RandomVerticalFlip(p=0.25)"
    with pytest.raises(ValueError, match=r"RandomVerticalFlip: p must be between 0 and 1, got 2"):
        transforms.RandomVerticalFlip(2)
    with pytest.raises(norch.ShapeError):
        F.hflip(norch.zeros(3))


def test_random_flip_is_half_of_the_time():
    norch.manual_seed(1)
    flip = transforms.RandomHorizontalFlip()
    flipped = sum(flip(GREY)[0, 0] == 5 for _ in range(2000))
    assert 900 < flipped < 1100


def test_random_crop_takes_each_place_equally_often():
    norch.manual_seed(2)
    crop = transforms.RandomCrop((4, 4))
    places = np.bincount([crop(GREY)[0, 0] for _ in range(1200)], minlength=9)
    assert places.nonzero()[0].tolist() == [0, 1, 2, 6, 7, 8]
    assert places[places > 0].min() > 140
    for image in (GREY, planes(GREY)):
        assert crop(image).shape[-2:] == (4, 4)


def test_random_crop_pads():
    wide = np.pad(GREY, 2, mode="symmetric")
    views = np.lib.stride_tricks.sliding_window_view(wide, (5, 6)).reshape(-1, 5, 6)
    crop = transforms.RandomCrop((5, 6), 2, padding_mode="symmetric")
    for _ in range(20):
        assert (views == crop(GREY)).all((1, 2)).any()
    assert transforms.RandomCrop((5, 6))(GREY) is GREY
    grown = transforms.RandomCrop(8, pad_if_needed=True, fill=200)(GREY)
    assert grown.shape == (8, 8)
    assert (grown != 200).sum() == 30
    assert repr(crop) == "RandomCrop(size=(5, 6), padding=2)"
    with pytest.raises(ValueError, match="an image of 5 x 6 is smaller than the size 7 x 7"):
        transforms.RandomCrop(7)(GREY)


def draw_all():
    steps = [
        transforms.RandomCrop(4),
        transforms.RandomHorizontalFlip(),
        transforms.RandomApply([F.vflip]),
        transforms.ToTensor(),
        transforms.RandomErasing(value="random"),
    ]
    steps = transforms.Compose(steps)
    return [steps(GREY).tolist() for _ in range(8)]


def test_the_seed_decides():
    outs = []
    for seed in (3, 3, 4):
        norch.manual_seed(seed)
        outs.append(draw_all())
    assert outs[0] == outs[1] != outs[2]
    norch.manual_seed(3)
    draw_all()
    state = norch.get_rng_state()
    first = draw_all()
    assert first != outs[0]
    norch.set_rng_state(state)
    assert draw_all() == first


def test_random_apply():
    assert transforms.RandomApply([F.hflip, F.vflip], p=1)(GREY).tolist() == GREY[::-1, ::-1].tolist()
    assert transforms.RandomApply([F.hflip], p=0)(GREY) is GREY
    assert repr(transforms.RandomApply([transforms.Pad(1)], 0.2)).splitlines()[:2] == ["RandomApply(", "    p=0.2"]


def test_random_erasing():
    norch.manual_seed(0)
    image = norch.ones(3, 40, 50)
    erased = transforms.RandomErasing(p=1, scale=(0.1, 0.3))
    shares = [(erased(image) == 0).to(norch.float32).mean().item() for _ in range(100)]
    assert 0.08 < min(shares) < 0.13
    assert 0.25 < max(shares) < 0.32
    assert image.min() == 1
    out = transforms.RandomErasing(1, value=(5, 6, 7))(image)
    where = (out[0] == 5).nonzero()
    top, left = where.amin(0).tolist()
    bottom, right = where.amax(0).tolist()
    assert len(where) == (bottom - top + 1) * (right - left + 1)
    assert out[:, top, left].tolist() == [5, 6, 7]
    assert transforms.RandomErasing(1, inplace=True)(image) is image
    assert image.min() == 0
    assert transforms.RandomErasing(0)(image) is image
    noise = transforms.RandomErasing(1, scale=(0.5, 0.5), ratio=(1, 1), value="random")(norch.zeros(1, 100, 100))
    values = noise[noise != 0]
    assert len(values) == 71 * 71
    assert values.std().item() == pytest.approx(1, abs=0.05)
    assert repr(transforms.RandomErasing()) == (
        "RandomErasing(p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0, inplace=False)"
    )
    assert F.erase(norch.ones(1, 2, 2), 0, 1, 2, 1, 0.0).tolist() == [[[1, 0], [1, 0]]]
    for bad in (dict(p=-1), dict(scale=(0.5, 0.1)), dict(ratio=(0, 1)), dict(value="noise")):
        with pytest.raises(ValueError):
            transforms.RandomErasing(**bad)
    with pytest.raises(norch.ShapeError, match="ToTensor"):
        transforms.RandomErasing()(GREY)
    with pytest.raises(norch.ShapeError, match="2 values for 3 channels"):
        transforms.RandomErasing(1, value=(1, 2))(image)


def test_random_resized_crop():
    norch.manual_seed(0)
    image = np.random.default_rng(0).integers(0, 256, (60, 80), dtype=np.uint8)
    crop = transforms.RandomResizedCrop((20, 30), scale=(0.2, 0.5))
    start, end = "RandomResizedCrop(size=(20, 30), scale=(0.2, 0.5), ", "interpolation=bilinear, antialias=True)"
    assert repr(crop) == f"{start}ratio=(0.75, 1.3333), {end}"
    parts = [crop._part(60, 80) for _ in range(300)]
    shares = [height * width / 4800 for _, _, height, width in parts]
    assert 0.19 < min(shares) < 0.22
    assert 0.47 < max(shares) < 0.51
    ratios = [width / height for _, _, height, width in parts]
    assert 0.72 < min(ratios) < 0.8
    assert 1.25 < max(ratios) < 1.4
    assert all(top >= 0 <= left and top + h <= 60 and left + w <= 80 for top, left, h, w in parts)
    assert crop(image).shape == (20, 30)
    assert crop(planes(image)).shape == (1, 20, 30)
    assert np.array_equal(F.resized_crop(image, 5, 6, 20, 40, 10), F.resize(image[5:25, 6:46], 10))
    wide = transforms.RandomResizedCrop(4, scale=(2, 2))
    assert wide._part(60, 100) == (0, 10, 60, 80)
    assert wide._part(100, 60) == (10, 0, 80, 60)
    with pytest.raises(ValueError, match="scale and ratio"):
        transforms.RandomResizedCrop(4, ratio=(2, 1))


def test_transforms_can_be_copied():
    steps = transforms.Compose([transforms.RandomCrop(4, 1), transforms.ToTensor(), transforms.Normalize([0.5], [0.5])])
    for other in (copy.deepcopy(steps), pickle.loads(pickle.dumps(steps))):
        assert repr(other) == repr(steps)
        assert other(GREY).shape == (1, 4, 4)
