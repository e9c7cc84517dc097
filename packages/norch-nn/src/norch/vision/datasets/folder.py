"""Images in folders, of which each is a class."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from .vision_dataset import VisionDataset

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def has_file_allowed_extension(filename: str, extensions: str | Sequence[str]) -> bool:
    """Whether the name ends in one of `extensions`, in small or capital letters."""
    return filename.lower().endswith(extensions if isinstance(extensions, str) else tuple(extensions))


def is_image_file(filename: str) -> bool:
    """Whether the name ends as that of an image does."""
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


def pil_loader(path: str | os.PathLike[str]) -> Any:
    """The file as a PIL image of three colours. Raises ImportError without Pillow, OSError for another file."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("ImageFolder needs Pillow, or loader=: pip install norch-nn[vision]") from None
    with Image.open(path) as image:
        return image.convert("RGB")


default_loader = pil_loader


def find_classes(directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
    """The names of the folders in `directory`, sorted, and the number of each. FileNotFoundError where none is."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: i for i, name in enumerate(classes)}


def make_dataset(
    directory: str | os.PathLike[str],
    class_to_idx: dict[str, int] | None = None,
    extensions: str | Sequence[str] | None = None,
    is_valid_file: Callable[[str], bool] | None = None,
    allow_empty: bool = False,
) -> list[tuple[str, int]]:
    """(path, class) of each file below `directory` that ends in `extensions`, or for which `is_valid_file` is true.

    Raises ValueError unless one of the two is given, FileNotFoundError where a class has no file, unless `allow_empty`.
    """
    if class_to_idx is None:
        class_to_idx = find_classes(directory)[1]
    elif not class_to_idx:
        raise ValueError("make_dataset(): class_to_idx must have at least one class")
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("make_dataset(): pass either extensions or is_valid_file")
    valid = is_valid_file or (lambda path: has_file_allowed_extension(path, extensions or ()))
    found: list[tuple[str, int]] = []
    empty = set(class_to_idx)
    for name in sorted(class_to_idx):
        for folder, _, files in sorted(os.walk(os.path.join(os.path.expanduser(directory), name), followlinks=True)):
            for file in sorted(files):
                path = os.path.join(folder, file)
                if valid(path):
                    found.append((path, class_to_idx[name]))
                    empty.discard(name)
    if empty and not allow_empty:
        wanted = "" if extensions is None else f" Supported extensions are: {', '.join(extensions)}"
        raise FileNotFoundError(f"Found no valid file for the classes {', '.join(sorted(empty))}.{wanted}")
    return found


class DatasetFolder(VisionDataset):
    """The files below `root`/CLASS/, read by `loader(path)`: dataset[i] is (what it gives, number of the class).

    `samples` has their paths and numbers, `targets` the numbers, `classes` the names. extensions, is_valid_file,
    allow_empty: as of `make_dataset`, as which it raises.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        loader: Callable[[str], Any],
        extensions: Sequence[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.loader, self.extensions = loader, extensions
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(self.root, self.class_to_idx, extensions, is_valid_file, allow_empty)
        self.targets = [target for _, target in self.samples]

    @staticmethod
    def make_dataset(
        directory: str | os.PathLike[str],
        class_to_idx: dict[str, int],
        extensions: Sequence[str] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> list[tuple[str, int]]:
        """Subclasses may find other files.

        directory, class_to_idx, extensions, is_valid_file, allow_empty: as of the function `make_dataset`.
        """
        return make_dataset(directory, class_to_idx, extensions, is_valid_file, allow_empty)

    def find_classes(self, directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
        """Subclasses may name other classes. The names of the folders in `directory`, and their numbers."""
        return find_classes(directory)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        sample = self.loader(path)
        if self.transform is not None:
            sample = self.transform(sample)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return sample, target

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """The images below `root`/CLASS/: dataset[i] is (a PIL image of three colours, number of the class).

    is_valid_file, allow_empty: as of `DatasetFolder`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        loader: Callable[[str], Any] = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(root, loader, extensions, transform, target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples
