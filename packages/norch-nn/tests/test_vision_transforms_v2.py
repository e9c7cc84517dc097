"""The transforms of torchvision's v2, beside numbers that it gave: norch.vision.transforms.v2."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.vision import transforms as v1
from norch.vision.transforms import v2
from norch.vision.transforms.v2 import functional as F

pytestmark = pytest.mark.usefixtures("on_host")

SMALL = [
    [171, 206, 5, 206, 120, 131, 161],
    [73, 250, 13, 71, 98, 146, 104],
    [33, 11, 0, 12, 38, 255, 48],
    [167, 192, 60, 72, 111, 67, 249],
    [45, 229, 204, 216, 29, 100, 160],
]

RESIZED = {
    ((3, 4), "bilinear", True): [164, 91, 126, 136, 83, 40, 84, 139, 149, 160, 94, 143],
    ((3, 4), "bilinear", False): [169, 27, 119, 140, 25, 2, 35, 126, 135, 158, 70, 152],
    ((3, 4), "bicubic", True): [169, 88, 127, 134, 84, 27, 79, 146, 149, 167, 87, 145],
    ((3, 4), "bicubic", False): [190, 9, 122, 141, 26, 0, 20, 137, 144, 159, 70, 157],
    ((3, 4), "lanczos", True): [166, 93, 127, 132, 87, 22, 78, 150, 150, 177, 81, 145],
    ((6, 3), "bilinear", True): [150, 134, 139, 140, 93, 126, 67, 50, 129, 75, 53, 138, 156, 105, 132, 158, 163, 106],
    ((6, 3), "bilinear", False): [194, 206, 141, 192, 105, 134, 90, 37, 163, 87, 37, 162, 180, 108, 126, 168, 216, 120],
    ((6, 3), "bicubic", True): [154, 128, 145, 149, 88, 127, 52, 38, 132, 62, 37, 145, 167, 99, 137, 160, 166, 102],
    ((6, 3), "bicubic", False): [217, 213, 142, 241, 108, 131, 82, 19, 193, 73, 19, 183, 212, 111, 111, 173, 224, 127],
    ((6, 3), "lanczos", True): [150, 125, 149, 155, 93, 129, 40, 37, 129, 54, 28, 153, 178, 101, 136, 163, 169, 94],
}  # fmt: skip
"""By size, mode and antialias: what torchvision 0.28 makes of SMALL."""


def numbers(*shape: int, dtype: str = "uint8") -> np.ndarray:
    draws = np.random.default_rng(0)
    return draws.integers(0, 256, shape).astype(dtype) if dtype != "float32" else draws.random(shape, np.float32)


@pytest.mark.parametrize(("size", "mode", "antialias"), RESIZED)
def test_bytes_are_resized_in_integers(size, mode, antialias):
    x = norch.tensor(SMALL, dtype=norch.uint8)
    found = F.resize(x, list(size), interpolation=mode, antialias=antialias)
    assert found.dtype is norch.uint8
    assert found.shape == size
    assert found.flatten().tolist() == RESIZED[size, mode, antialias]
    floats = F.resize(x.double()[None, None], list(size), interpolation=mode, antialias=antialias).clamp(0, 255)
    assert (floats[0, 0] - found.double()).abs().max() < (2 if mode == "bilinear" else 16)  # rounded and cut off twice


def test_sizes():
    x = norch.tensor(numbers(3, 20, 30))
    assert F.resize(x, None, max_size=15).shape == (3, 10, 15)
    assert F.resize(x.mT, None, max_size=15).shape == (3, 15, 10)
    assert F.resize(x, 10).shape == (3, 10, 15)
    assert F.resize(x, [10], max_size=12).shape == (3, 8, 12)
    assert F.resize(x, [20, 30]) is x
    assert norch.equal(F.resize(x, [9, 9], "nearest"), v1.functional.resize(x, [9, 9], "nearest"))
    array = numbers(20, 30, 3)
    assert (F.resize(array, [9, 9]) == v1.functional.resize(array, [9, 9])).all()
    assert v2.Resize(None, max_size=15, interpolation="bicubic", antialias=False)(x).shape == (3, 10, 15)
    assert F.resized_crop(x, 2, 3, 8, 9, [4, 5]).tolist() == F.resize(x[:, 2:10, 3:12], [4, 5]).tolist()
    assert v2.RandomResizedCrop(7)(x).shape == (3, 7, 7)
    for arguments, match in (
        ((None,), "max_size is needed"),
        (([5, 5], "lanczos", None, False), "antialias"),
        (([5, 5], "cubist"), "must be one of"),
    ):
        with pytest.raises(ValueError, match=match):
            F.resize(x, *arguments)
    with pytest.raises(norch.ShapeError, match="no pixels"):
        F.resize(x[:, :0], [5, 5])


def test_dtypes():
    x = norch.tensor([[0, 1, 128, 255]], dtype=norch.uint8)
    assert F.to_dtype(x, norch.float64, scale=True).tolist() == [[0, 1 / 255, 128 * (1 / 255), 1]]
    assert F.to_dtype(x, norch.float32).tolist() == [[0, 1, 128, 255]]
    assert F.to_dtype(x, norch.int16, scale=True).tolist() == [[0, 128, 128 * 128, 255 * 128]]
    assert F.to_dtype(x, norch.uint16, scale=True).tolist() == [[0, 256, 128 * 256, 255 * 256]]
    assert F.to_dtype(x, norch.int8, scale=True).tolist() == [[0, 0, 64, 127]]
    assert F.to_dtype(norch.tensor([0, 0.5, 1.0]), norch.uint8, scale=True).tolist() == [0, 127, 255]
    assert F.to_dtype(norch.tensor([True]), norch.float32, scale=True).tolist() == [1]
    assert F.to_dtype(x, norch.uint8, scale=True) is x
    assert F.convert_image_dtype(x).dtype is norch.float32
    assert F.to_dtype_image(x, norch.float16, scale=True).dtype is norch.float16
    assert v2.ToDtype(norch.float32, scale=True)(x).max() == 1
    assert v2.ToDtype(norch.float32)("label") == "label"
    assert v2.ConvertImageDtype()(x).max() == 1
    for a, dtype in ((norch.ones(1), norch.int32), (norch.ones(1), norch.int64), (x, norch.bool)):
        with pytest.raises(norch.DTypeError):
            F.to_dtype(a, dtype, scale=True)
    with pytest.raises(TypeError, match="ToImage"):
        F.to_dtype(numbers(2, 2))
    with pytest.raises(ValueError, match="one dtype"):
        v2.ToDtype({"others": norch.float32})


def test_images_of_every_kind():
    array, tensor = numbers(4, 5, 3), norch.tensor(numbers(1, 4, 5))
    assert F.to_image(array).shape == v2.ToImage()(array).shape == (3, 4, 5)
    assert F.to_image(array[..., 0]).shape == (1, 4, 5)
    assert F.to_image(tensor) is v2.ToPureTensor()(tensor) is v2.Identity()(tensor) is tensor
    assert norch.equal(F.grayscale_to_rgb(tensor), norch.cat([tensor] * 3))
    assert v2.RGB()(array) is not None
    assert F.grayscale_to_rgb(array[..., :1]).shape == F.grayscale_to_rgb(array[..., 0]).shape == (4, 5, 3)
    assert F.grayscale_to_rgb(numbers(4, 5, 4)).shape == (4, 5, 3)
    four = norch.ones(2, 4, 3, 3)
    assert F.grayscale_to_rgb(four) is four
    with pytest.raises(norch.ShapeError, match="1 or 3 channels"):
        F.grayscale_to_rgb(norch.ones(2, 3, 3))
    assert (F.get_size(array), F.get_dimensions(array), F.get_num_channels(array[..., 0])) == ([4, 5], [3, 4, 5], 1)
    assert (F.get_dimensions(tensor), F.get_num_channels(tensor[0])) == ([1, 4, 5], 1)
    Image = pytest.importorskip("PIL.Image")
    picture = Image.fromarray(array)
    assert (F.get_dimensions(picture), F.to_image(picture).shape) == ([3, 4, 5], (3, 4, 5))
    assert F.grayscale_to_rgb(picture.convert("L")).mode == "RGB"


def test_borders_and_means():
    x = norch.tensor(numbers(3, 2, 3))
    assert F.pad(x, 1, fill=None)[0, 0].tolist() == [0] * 5
    found = F.pad(x, [1, 0, 2, 1], fill=[1, 2, 3])
    assert found.shape == (3, 3, 6)
    assert found[:, :, 0].tolist() == found[:, :, 4].tolist() == [[1] * 3, [2] * 3, [3] * 3]
    assert norch.equal(found[:, :2, 1:4], x)
    assert F.pad(x.float(), 1, fill=[7.5])[2, 0, 0] == 7.5
    assert norch.equal(v2.Pad(2, padding_mode="edge")(x), v1.Pad(2, padding_mode="edge")(x))
    assert (F.pad(numbers(2, 3, 3), 1, fill=(1, 2, 3))[0, 0] == [1, 2, 3]).all()
    with pytest.raises(ValueError, match="constant"):
        F.pad(x, 1, fill=[1, 2, 3], padding_mode="edge")
    y = norch.tensor(numbers(2, 3, 4, 5, dtype="float32"))
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    expected = v1.functional.normalize(y, mean, std)
    assert norch.equal(F.normalize(y, norch.tensor(mean), norch.tensor(std)), expected)
    assert norch.equal(F.normalize(y.clone(), norch.tensor(mean), std, inplace=True), expected)
    assert norch.equal(v2.Normalize(mean, std)(y), expected)
    assert norch.equal(F.normalize(y, 0.5, 2.0), (y - 0.5) / 2)
    for wrong, error in ((x, norch.DTypeError), (numbers(2, 2), TypeError), (y[0, 0], norch.ShapeError)):
        with pytest.raises(error, match="normalize"):
            F.normalize(wrong, norch.tensor(mean), norch.tensor(std))
    with pytest.raises(ValueError, match="zero"):
        F.normalize(y, norch.tensor(mean), [1, 0, 1])


def test_all_that_the_first_version_has_is_there():
    public = [name for name in dir(v1) if isinstance(getattr(v1, name), type)]
    assert not [name for name in public if not hasattr(v2, name)]
    assert not [name for name in dir(v1.functional) if not name.startswith("_") and not hasattr(F, name)]
    assert v2.functional.crop_image is v1.functional.crop
    steps = v2.Compose([v2.ToImage(), v2.RandomCrop(3), v2.ToDtype(norch.float32, scale=True), v2.Normalize([0], [1])])
    assert steps(numbers(4, 5, 3)).shape == (3, 3, 3)


MODES = ("nearest", "nearest-exact", "bilinear", "bicubic", "lanczos")
CASES = {
    **{
        f"{mode} {antialias} {size}": lambda M, x, mode=mode, antialias=antialias, size=size: M.resize(
            x, list(size), interpolation=M.InterpolationMode(mode), antialias=antialias
        )
        for mode in MODES
        for antialias in (True, False)
        for size in ((20, 71), (224, 19), (37, 30))
        if antialias or mode != "lanczos"
    },
    "size": lambda M, x: M.resize(x, None, max_size=17),
    "pad": lambda M, x: M.pad(x, [1, 2, 3, 4], fill=[7, 8, 9]),
    "pad none": lambda M, x: M.pad(x, 2, None, "symmetric"),
    "crop": lambda M, x: M.crop(x, -3, 5, 20, 60),
    "grey": lambda M, x: M.rgb_to_grayscale(x, 3),
    "three": lambda M, x: M.grayscale_to_rgb(x[:1]),
    "dimensions": lambda M, x: x[: M.get_dimensions(x)[0], : M.get_size(x)[0]],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_it_is_torchvisions(case, dtype):
    torch = pytest.importorskip("torch")
    from importing_torchvision import import_torchvision

    theirs = import_torchvision("torchvision.transforms.v2.functional")
    x = numbers(3, 37, 52, dtype=dtype)
    expected, found = CASES[case](theirs, torch.tensor(x)).numpy(), CASES[case](F, norch.tensor(x)).numpy()
    assert found.dtype == expected.dtype
    if dtype == "uint8":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("scale", [False, True])
def test_dtypes_are_torchvisions(scale):
    torch = pytest.importorskip("torch")
    from importing_torchvision import import_torchvision

    theirs = import_torchvision("torchvision.transforms.v2.functional")
    names = ("uint8", "int8", "int16", "uint16", "int32", "int64", "float16", "float32", "float64", "bfloat16")
    for source in names:
        values = numbers(4, 5, dtype="float32") if "float" in source else numbers(4, 5).astype("int64")
        given = [library.tensor(values).to(getattr(library, source)) for library in (torch, norch)]
        for wanted in names:
            try:
                expected = theirs.to_dtype(given[0], getattr(torch, wanted), scale=scale)
            except RuntimeError:
                with pytest.raises(norch.DTypeError):
                    F.to_dtype(given[1], getattr(norch, wanted), scale=scale)
                continue
            found = F.to_dtype(given[1], getattr(norch, wanted), scale=scale)
            assert found.dtype is getattr(norch, wanted)
            assert found.double().tolist() == expected.double().tolist(), (source, wanted)
