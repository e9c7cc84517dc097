"""CIFAR-10 and CIFAR-100."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .cifar_files import Batch, parse_binary, parse_pickle, read_members
from .download import download
from .files import damaged, file_md5, find, md5, not_found, wrong_checksum
from .vision_dataset import TrainTestDataset


class CIFAR10(TrainTestDataset):
    """CIFAR-10: 50,000 photos of ten kinds of things to train on (`train`), else 10,000 to test on, RGB, 32 x 32.

    Reads the archives cifar-10-binary.tar.gz or cifar-10-python.tar.gz, or the folders that unpacking them gives, in
    root or root/CIFAR10; of the pickles in the latter nothing is executed. `download=True` gets the former into root.

    dataset[i] is (image, label): a uint8 NumPy array of 32 x 32 x 3, which stands for torchvision's PIL image and is
    what the transforms take, and an int. `data` is a uint8 array (N, 32, 32, 3), `targets` a list of ints.

    Raises DatasetError for a file that is missing, whose checksum is not that of the published one (`verify=False`
    reads files of your own; unpacked .bin files have no published one), or whose contents are of another form.
    """

    url = "https://www.cs.toronto.edu/~kriz/"
    binary_archive = ("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530")
    python_archive = ("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a")
    binary_folder = "cifar-10-batches-bin"
    base_folder = "cifar-10-batches-py"
    train_list = [
        ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
        ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        ("data_batch_4", "634d18415352ddfa80567beed471001a"),
        ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
    ]
    test_list = [("test_batch", "40351d587109b95175f43aff81a1287e")]
    label_bytes = 1  # before each image of the binary version, of which the last counts
    label_key = b"labels"
    classes = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]

    data: np.ndarray
    targets: list[int]

    def folders(self) -> list[Path]:
        """Where the archives and the folders are looked for, in this order."""
        return [Path(self.root), Path(self.root) / type(self).__name__]

    def download(self) -> None:
        """Gets the binary archive into root, unless the data is there. Raises DatasetError where that fails."""
        name, digest = self.binary_archive
        target = Path(self.root) / name
        if self._unpacked() or find(self.folders(), (self.python_archive[0],)):
            return
        path = find(self.folders(), (name,))
        if path is None or (path == target and self.verify and file_md5(path) != digest):
            download([self.url + name], target, digest, type(self).__name__)

    def _unpacked(self) -> tuple[Path, bool] | None:
        """The folder that has all files of this split, and whether they are pickles."""
        names = [name for name, _ in (self.train_list if self.train else self.test_list)]
        for folder in self.folders():
            for part, suffix in ((self.base_folder, ""), (self.binary_folder, ".bin")):
                if all((folder / part / (name + suffix)).is_file() for name in names):
                    return folder / part, not suffix
        return None

    def _load(self) -> tuple[np.ndarray, list[int]]:
        batches = self._batches()
        pixels = np.concatenate([images for images, _ in batches])
        images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return images, [label for _, labels in batches for label in labels]

    def _batches(self) -> list[Batch]:
        files = self.train_list if self.train else self.test_list
        unpacked = self._unpacked()
        if unpacked:
            return [self._read(unpacked[0], name, digest, unpacked[1]) for name, digest in files]
        for (archive, digest), folder, pickled in (
            (self.binary_archive, self.binary_folder, False),
            (self.python_archive, self.base_folder, True),
        ):
            found = find(self.folders(), (archive,))
            if found is not None:
                if self.verify and file_md5(found) != digest:
                    raise wrong_checksum(type(self).__name__, found)
                return self._read_archive(found, [f"{folder}/{name}{'' if pickled else '.bin'}" for name, _ in files])
        name = self.binary_archive[0]
        raise not_found(type(self).__name__, name, self.folders(), self.url + name, None)

    def _read(self, folder: Path, name: str, digest: str, pickled: bool) -> Batch:
        path = folder / (name if pickled else f"{name}.bin")
        contents = path.read_bytes()
        if pickled and self.verify and md5(contents) != digest:
            raise wrong_checksum(type(self).__name__, path)
        return self._parse(path, contents, pickled)

    def _read_archive(self, path: Path, names: list[str]) -> list[Batch]:
        try:
            contents = read_members(path, names)
        except ValueError as error:
            raise damaged(type(self).__name__, path, str(error)) from None
        return [self._parse(path / name, contents[name], not name.endswith(".bin")) for name in names]

    def _parse(self, path: Path, contents: bytes, pickled: bool) -> Batch:
        try:
            if pickled:
                return parse_pickle(contents, self.label_key, len(self.classes))
            return parse_binary(contents, self.label_bytes, len(self.classes))
        except ValueError as error:
            raise damaged(type(self).__name__, path, str(error)) from None

    def _sample(self, index: int) -> tuple[Any, Any]:
        return self.data[index], self.targets[index]


class CIFAR100(CIFAR10):
    """CIFAR-100: like CIFAR-10, with a hundred classes (the fine labels)."""

    binary_archive = ("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8")
    python_archive = ("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85")
    binary_folder = "cifar-100-binary"
    base_folder = "cifar-100-python"
    train_list = [("train", "16019d7e3df5f24257cddd939b257f8d")]
    test_list = [("test", "f0ef6b0ae62326f3e7ffdfab6717acfc")]
    label_bytes = 2
    label_key = b"fine_labels"
    classes = (
        "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can "
        "castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin "
        "elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster "
        "man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck "
        "pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk "
        "skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger "
        "tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"
    ).split()
