"""What the tests of norch-nn share: `--default-device cuda` runs them there."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vision_files import md5, mnist_files

import norch
from norch.vision.datasets import MNIST, FashionMNIST
from norch.vision.datasets import download as downloads


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--default-device", help="make tensors there where a test names no device (default: cpu)")


def pytest_configure(config: pytest.Config) -> None:
    device = config.getoption("--default-device")
    if device:
        norch.set_default_device(device)


@pytest.fixture
def on_host() -> Iterator[None]:
    """For tests of what the host does (pictures, files): tensors are made there, whatever --default-device says."""
    before = norch.get_default_device()
    norch.set_default_device("cpu")
    yield
    norch.set_default_device(before)


@pytest.fixture
def no_distribution(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No folder of a distribution, and no pause between tries of a download."""
    monkeypatch.setattr(FashionMNIST, "package_folder", str(tmp_path / "distribution"))
    monkeypatch.setattr(downloads, "PAUSE", 0.0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Any:
    """MNIST whose published files are those of `mnist_files`."""
    contents, arrays = mnist_files()
    packed = {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in contents.items()}
    for kind in (MNIST, FashionMNIST):
        monkeypatch.setattr(kind, "resources", [(name, md5(data)) for name, data in packed.items()])
        monkeypatch.setattr(kind, "unpacked_md5", {name: md5(data) for name, data in contents.items()})
    return contents, packed, arrays
