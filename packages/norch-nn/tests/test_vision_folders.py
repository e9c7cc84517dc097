"""Images in folders, and images made up."""

from __future__ import annotations

import numpy as np
import pytest
from importing_torchvision import import_torchvision

import norch
from norch.vision import transforms
from norch.vision.datasets import DatasetFolder, FakeData, ImageFolder, folder

pytestmark = pytest.mark.usefixtures("on_host")


@pytest.fixture
def root(tmp_path):
    for name, files in {"cat": ("b.TXT", "a.txt", "inner/c.txt", "skipped.md"), "bee": ("d.txt",)}.items():
        for file in files:
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file)
    (tmp_path / "file.txt").write_text("no class")
    return tmp_path


def read(path):
    with open(path) as file:
        return file.read()


def test_files_by_class(root):
    data = DatasetFolder(str(root), read, (".txt",), transform=str.upper, target_transform=lambda i: -i)
    assert data.classes == ["bee", "cat"]
    assert data.class_to_idx == {"bee": 0, "cat": 1}
    assert [data[i] for i in range(len(data))] == [("D.TXT", 0), ("A.TXT", -1), ("B.TXT", -1), ("INNER/C.TXT", -1)]
    assert data.targets == [0, 1, 1, 1]
    assert repr(data).splitlines()[:2] == ["Dataset DatasetFolder", "    Number of datapoints: 4"]
    chosen = DatasetFolder(root, read, is_valid_file=lambda path: path.endswith("d"), allow_empty=True)
    assert chosen[0] == ("skipped.md", 1)


def test_what_is_missing_is_named(root, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no valid file for the classes bee. Supported extensions are: .md"):
        DatasetFolder(root, read, (".md",))
    with pytest.raises(FileNotFoundError, match="any class folder"):
        ImageFolder(root / "bee")
    with pytest.raises(ValueError, match="either extensions or is_valid_file"):
        folder.make_dataset(root)
    with pytest.raises(ValueError, match="at least one class"):
        folder.make_dataset(root, {}, ".txt")


def test_pictures_in_folders(tmp_path):
    image = pytest.importorskip("PIL.Image")
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4)
    (tmp_path / "a").mkdir()
    image.fromarray(grey).save(tmp_path / "a" / "x.PNG")
    data = ImageFolder(tmp_path)
    picture, target = data[0]
    assert (picture.mode, picture.size, target, data.imgs) == ("RGB", (4, 3), 0, data.samples)
    assert np.array_equal(np.asarray(picture)[..., 2], grey)
    tensors = ImageFolder(tmp_path, transforms.Compose([transforms.Resize((6, 8)), transforms.ToTensor()]))
    assert tensors[0][0].shape == (3, 6, 8)
    assert ImageFolder(tmp_path, loader=lambda path: path[-5:])[0] == ("x.PNG", 0)
    assert folder.is_image_file("a.JPEG")
    assert not folder.is_image_file("a.txt")


def test_fake_data():
    data = FakeData(20, (3, 8, 9), num_classes=4, transform=transforms.ToTensor())
    assert len(data) == 20
    image, target = data[3]
    assert (tuple(image.shape), image.dtype) == ((3, 8, 9), norch.float32)
    assert image.tolist() == data[3][0].tolist() != data[4][0].tolist()
    assert FakeData(20, (3, 8, 9), 4, random_offset=1)[2][1] == target
    assert {label for _, label in data} == {0, 1, 2, 3}
    assert FakeData(2, (1, 2, 3), target_transform=str)[1][1].isdigit()
    with pytest.raises(IndexError, match="20"):
        data[20]
    with pytest.raises(ValueError, match=r"\(C, H, W\)"):
        FakeData(image_size=(3, 8))


def test_folders_beside_torchvision(root):
    theirs = import_torchvision("torchvision.datasets")
    expected = theirs.DatasetFolder(str(root), read, (".txt",))
    assert DatasetFolder(str(root), read, (".txt",)).samples == expected.samples
    assert folder.IMG_EXTENSIONS == theirs.folder.IMG_EXTENSIONS
