"""What the image data sets share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from norch.utils.data import Dataset

Transform = Callable[[Any], Any]


class StandardTransform:
    """One transform for the image and one for the target, as one function of both."""

    def __init__(self, transform: Transform | None = None, target_transform: Transform | None = None) -> None:
        self.transform = transform
        self.target_transform = target_transform

    def __call__(self, image: Any, target: Any) -> tuple[Any, Any]:
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __repr__(self) -> str:
        lines = [type(self).__name__]
        for title, function in (("Transform: ", self.transform), ("Target transform: ", self.target_transform)):
            if function is not None:
                lines.append(title + repr(function).replace("\n", "\n" + " " * len(title)))
        return "\n".join(lines)


class VisionDataset(Dataset[Any]):
    """A data set of images under a root folder.

    Takes either `transforms`, a function of image and target, or `transform` and `target_transform`, one for each;
    ValueError for both.
    """

    root: Any

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        transforms: Callable[[Any, Any], Any] | None = None,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
    ) -> None:
        separate = transform is not None or target_transform is not None
        if transforms is not None and separate:
            raise ValueError("VisionDataset: pass either transforms, or transform and target_transform")
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        self.transform = transform
        self.target_transform = target_transform
        self.transforms = StandardTransform(transform, target_transform) if separate else transforms

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")

    def extra_repr(self) -> str:
        """What `repr` says besides the number of samples and the root."""
        return ""

    def __repr__(self) -> str:
        body = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            body.append(f"Root location: {self.root}")
        body += self.extra_repr().splitlines()
        if self.transforms is not None:
            body.append(repr(self.transforms))
        return "\n".join([f"Dataset {type(self).__name__}", *(" " * 4 + part for part in body)])


class TrainTestDataset(VisionDataset):
    """Images with labels, in a part to train on (`train`) and one to test on, which `download=True` gets.

    `verify=False` reads files whose checksums are not those of the published ones.
    """

    classes: list[str]
    data: Any
    targets: Any

    def __init__(
        self,
        root: str | os.PathLike[str],
        train: bool = True,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        download: bool = False,
        *,
        verify: bool = True,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        self.verify = verify
        if download:
            self.download()
        self.data, self.targets = self._load()

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The numbers of the classes by name."""
        return {name: i for i, name in enumerate(self.classes)}

    def download(self) -> None:
        """Gets the files that are missing. Raises DatasetError where that fails."""
        raise NotImplementedError

    def _load(self) -> tuple[Any, Any]:
        """All images and all labels."""
        raise NotImplementedError

    def _sample(self, index: int) -> tuple[Any, Any]:
        """An image and its label, as they are."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, target = self._sample(index)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"
