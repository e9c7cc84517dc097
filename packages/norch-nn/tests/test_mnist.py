"""MNIST and its relatives, on small files that the tests write in the published format."""

from __future__ import annotations

import gzip
import pickle

import numpy as np
import pytest
from vision_files import NAMES, mnist_files, put

import norch
from norch.utils.data import DataLoader
from norch.vision import datasets, transforms
from norch.vision.datasets import CIFAR10, KMNIST, MNIST, DatasetError, FashionMNIST

pytestmark = pytest.mark.usefixtures("no_distribution", "on_host")


@pytest.mark.parametrize("folder", ["MNIST/raw", "MNIST", "."])
@pytest.mark.parametrize("packed", [True, False])
def test_mnist_is_read_from_each_place_packed_or_not(small, tmp_path, folder, packed):
    put(tmp_path / folder, small[1] if packed else small[0])
    for train, (images, labels) in zip((True, False), small[2]):
        data = MNIST(tmp_path, train=train)
        assert len(data) == len(images)
        assert (data.data.dtype, data.targets.dtype) == (norch.uint8, norch.int64)
        assert np.array_equal(data.data.numpy(), images)
        assert data.targets.tolist() == labels.tolist()
        image, label = data[3]
        assert isinstance(image, np.ndarray)
        assert (image.dtype, image.shape, type(label), label) == (np.uint8, (28, 28), int, 3)
        assert np.array_equal(image, images[3])


def test_attributes_and_repr(small, tmp_path):
    put(tmp_path, small[0])
    data = FashionMNIST(str(tmp_path), train=False)
    assert (
        repr(data)
        == f"Dataset FashionMNIST\n    Number of datapoints: 8\n    Root location: {tmp_path}\n    Split: Test"
    )
    assert data.classes[9] == "Ankle boot"
    assert data.class_to_idx["Trouser"] == 1
    assert MNIST.classes[0] == "0 - zero"
    assert KMNIST.classes[-1] == "wo"
    assert data.train is False
    data = MNIST(str(tmp_path), True, str, abs)
    assert repr(data).splitlines()[3:] == [
        "    Split: Train",
        "    StandardTransform",
        f"Transform: {str!r}",
        f"Target transform: {abs!r}",
    ]


def test_transforms_are_applied(small, tmp_path):
    put(tmp_path, small[0])
    data = MNIST(tmp_path, transform=lambda image: image[0, 0], target_transform=lambda label: -label)
    assert data[4] == (small[2][0][0][4, 0, 0], -4)


@pytest.mark.parametrize("shuffle", [False, True])
def test_random_transforms_in_a_loader(small, tmp_path, shuffle):
    put(tmp_path, small[0])
    steps = [transforms.RandomCrop(28, 4), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    data = MNIST(tmp_path, transform=transforms.Compose(steps))
    epochs = []
    for workers, batch_size in ((0, 4), (2, 5), (3, 4)):
        loader = DataLoader(data, batch_size, shuffle, num_workers=workers, seed=5)
        for _ in range(2):
            images, labels = (norch.cat(parts) for parts in zip(*loader))
            epochs.append((images.numpy().tobytes(), labels.tolist()))
    assert tuple(images.shape) == (20, 1, 28, 28)
    assert epochs[0] == epochs[2] == epochs[4]
    assert epochs[1] == epochs[3] == epochs[5]
    assert epochs[0][0] != epochs[1][0]


def test_data_and_targets_may_be_replaced(small, tmp_path):
    put(tmp_path, small[0])
    data = MNIST(tmp_path)
    kept = data.targets == 7
    data.data, data.targets = data.data[kept], data.targets[kept]
    assert len(data) == 2
    assert [label for _, label in (data[i] for i in range(2))] == [7, 7]
    data.data[0] = 3
    assert data[0][0].tolist() == [[3] * 28] * 28
    again = pickle.loads(pickle.dumps(data))
    assert again[1][0].tolist() == data[1][0].tolist()


def test_a_distributions_folder_is_used_last(small, tmp_path):
    put(tmp_path / "distribution", small[0])
    assert len(FashionMNIST(tmp_path / "root")) == 20
    with pytest.raises(DatasetError):
        MNIST(tmp_path / "root")


def test_files_packed_again_are_known_by_their_contents(small, tmp_path):
    put(tmp_path, {f"{name}.gz": gzip.compress(data, 1, mtime=5) for name, data in small[0].items()})
    assert len(MNIST(tmp_path)) == 20


@pytest.mark.parametrize("packed", [True, False])
def test_one_wrong_bit_is_found(small, tmp_path, packed):
    files = dict(small[1] if packed else small[0])
    name = NAMES[0] + ".gz" * packed
    data = bytearray(small[0][NAMES[0]])
    data[500] ^= 4
    files[name] = gzip.compress(bytes(data)) if packed else bytes(data)
    put(tmp_path, files)
    with pytest.raises(DatasetError, match=r"train-images-idx3-ubyte.* does not have the checksum.*verify=False"):
        MNIST(tmp_path)
    assert len(MNIST(tmp_path, train=False)) == 8
    assert np.count_nonzero(MNIST(tmp_path, verify=False).data.numpy() != small[2][0][0]) == 1


def test_damaged_gzip_is_explained(small, tmp_path):
    files = dict(small[1])
    files[NAMES[0] + ".gz"] = files[NAMES[0] + ".gz"][:-20]
    put(tmp_path, files)
    for verify in (True, False):
        with pytest.raises(DatasetError, match="cannot be unpacked"):
            MNIST(tmp_path, verify=verify)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[:10], "too short"),
        (lambda data: data[:-1], "holds 15679 bytes where its header says"),
        (lambda data: data + b"x", "holds 15681 bytes where its header says"),
        (lambda data: b"\x00\x00\x0d\x03" + data[4:], "not an idx file of bytes in 3 dims: it starts with 0x00000d03"),
        (lambda data: b"\x00\x00\x08\x01" + data[4:], "not an idx file of bytes in 3 dims"),
        (lambda data: data[:4] + b"\xff\xff\xff\xff" * 3 + data[16:], "where its header says"),
        (lambda data: b"", "too short"),
    ],
)
def test_structure_is_checked_without_checksums(tmp_path, damage, why):
    files, _ = mnist_files()
    files[NAMES[0]] = damage(files[NAMES[0]])
    put(tmp_path, files)
    with pytest.raises(DatasetError, match=why):
        KMNIST(tmp_path, verify=False)


def test_labels_are_checked(tmp_path):
    files, _ = mnist_files()
    put(tmp_path, {**files, NAMES[1]: files[NAMES[3]]})
    with pytest.raises(DatasetError, match="20 images in .*, but 8 labels in"):
        KMNIST(tmp_path, verify=False)
    put(tmp_path, {NAMES[1]: files[NAMES[1]][:-1] + b"\x0a"})
    with pytest.raises(DatasetError, match="has the label 10, where there are 10 classes"):
        KMNIST(tmp_path, verify=False)


def test_missing_files_are_explained(tmp_path):
    with pytest.raises(DatasetError) as caught:
        FashionMNIST(tmp_path / "data")
    text = str(caught.value)
    assert "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-images-idx3-ubyte.gz" in text
    assert str(tmp_path / "data" / "FashionMNIST" / "raw") in text
    assert "apt install dataset-fashion-mnist" in text
    assert "download=True" in text
    assert isinstance(caught.value, RuntimeError)
    with pytest.raises(DatasetError, match=r"https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"):
        CIFAR10(tmp_path)


def test_vision_dataset():
    with pytest.raises(ValueError, match="either transforms"):
        datasets.VisionDataset("x", transforms=min, transform=abs)
    with pytest.raises(NotImplementedError):
        datasets.VisionDataset("x")[0]
