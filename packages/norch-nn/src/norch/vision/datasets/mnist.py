"""MNIST and the data sets that come in its format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import norch

from .download import download
from .files import DatasetError, damaged, file_md5, find, not_found, read_gzip_or_plain
from .idx import parse_idx
from .vision_dataset import TrainTestDataset


class MNIST(TrainTestDataset):
    """MNIST: 60,000 handwritten digits to train on (`train`), else 10,000 to test on, grey, 28 x 28.

    The files, as they are published (.gz) or unpacked, are looked for in root/MNIST/raw, root/MNIST, root, and where a
    distribution puts them. `download=True` gets those that are missing into root/MNIST/raw.

    dataset[i] is (image, label): a uint8 NumPy array of 28 x 28, which stands for torchvision's PIL image and is what
    the transforms take, and an int. `data` is a uint8 tensor (N, 28, 28), `targets` an int64 tensor (N,), on the CPU.

    Raises DatasetError for a file that is missing, whose checksum is not that of the published one (`verify=False`
    reads files of your own), or whose contents are not what its header says.
    """

    mirrors = ["https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ]
    unpacked_md5 = {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }
    classes = [
        f"{i} - {name}"
        for i, name in enumerate(("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"))
    ]
    package: str | None = None  # of Debian
    package_folder: str | None = None

    data: norch.Tensor
    targets: norch.Tensor

    _seen: tuple[Any, Any, Any] = (None, None, None)

    @property
    def raw_folder(self) -> str:
        """Where `download` puts the files."""
        return os.path.join(self.root, type(self).__name__, "raw")

    def folders(self) -> list[Path]:
        """Where the files are looked for, in this order."""
        root = Path(self.root)
        found = [Path(self.raw_folder), root / type(self).__name__, root]
        return [*found, Path(self.package_folder)] if self.package_folder else found

    def download(self) -> None:
        """Gets the files that are missing or damaged into `raw_folder`. Raises DatasetError where no mirror works."""
        for name, digest in self.resources:
            path = find(self.folders(), (name, name.removesuffix(".gz")))
            target = Path(self.raw_folder) / name
            if path is None or (path == target and self.verify and file_md5(path) != digest):
                download([mirror + name for mirror in self.mirrors], target, digest, type(self).__name__, self.package)

    def _read(self, name: str, digest: str, ndim: int) -> tuple[Path, Any]:
        kind, plain = type(self).__name__, name.removesuffix(".gz")
        path = find(self.folders(), (name, plain))
        if path is None:
            raise not_found(kind, name, self.folders(), self.mirrors[0] + name, self.package)
        contents = read_gzip_or_plain(kind, path, digest, self.unpacked_md5.get(plain), self.verify)
        try:
            return path, parse_idx(contents, ndim)
        except ValueError as error:
            raise damaged(kind, path, str(error)) from None

    def _load(self) -> tuple[norch.Tensor, norch.Tensor]:
        images, labels = self.resources[:2] if self.train else self.resources[2:]
        image_path, data = self._read(*images, ndim=3)
        label_path, targets = self._read(*labels, ndim=1)
        kind = type(self).__name__
        if len(data) != len(targets):
            raise DatasetError(f"{kind}: {len(data)} images in {image_path}, but {len(targets)} labels in {label_path}")
        if len(targets) and targets.max() >= len(self.classes):
            why = f"has the label {targets.max()}, where there are {len(self.classes)} classes"
            raise damaged(kind, label_path, why)
        return norch.from_numpy(data), norch.from_numpy(targets.astype("int64"))

    def _arrays(self) -> tuple[Any, Any]:
        """`data` and `targets` as arrays on the same memory, which are indexed in a tenth of the time."""
        if self._seen[0] is not self.data or self._seen[1] is not self.targets:
            self._seen = (self.data, self.targets, (self.data.numpy(), self.targets.numpy()))
        arrays: tuple[Any, Any] = self._seen[2]
        return arrays

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": (None, None, None)}

    def _sample(self, index: int) -> tuple[Any, Any]:
        pixels, labels = self._arrays()
        return pixels[index], int(labels[index])


class FashionMNIST(MNIST):
    """Fashion-MNIST: like MNIST, with pictures of ten kinds of clothes. Debian has it as dataset-fashion-mnist.

    Source: https://github.com/zalandoresearch/fashion-mnist.
    """

    mirrors = [
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ]
    resources = [
        ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ]
    unpacked_md5 = {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    }
    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
    package = "dataset-fashion-mnist"
    package_folder = "/usr/share/datasets/fashion-mnist"


class KMNIST(MNIST):
    """Kuzushiji-MNIST: like MNIST, with ten cursive Japanese characters. Unpacked files are not checksummed.

    Source: https://github.com/rois-codh/kmnist.
    """

    mirrors = ["http://codh.rois.ac.jp/kmnist/dataset/kmnist/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "bdb82020997e1d708af4cf47b453dcf7"),
        ("train-labels-idx1-ubyte.gz", "e144d726b3acfaa3e44228e80efcd344"),
        ("t10k-images-idx3-ubyte.gz", "5c965bf0a639b31b8f53240b1b52f4d7"),
        ("t10k-labels-idx1-ubyte.gz", "7320c461ea6c1c855c0b718fb2a4b134"),
    ]
    unpacked_md5 = {}
    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]
