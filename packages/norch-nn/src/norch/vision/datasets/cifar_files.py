"""The two forms in which CIFAR is published: fixed-length records, and pickles that Python 2 wrote.

Source of both: https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from __future__ import annotations

import io
import math
import pickle
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

PIXELS = 3 * 32 * 32

Batch = tuple[np.ndarray, list[int]]  # uint8 of shape (N, 3072), each image plane after plane; labels


def _checked(pixels: np.ndarray, labels: list[int], classes: int) -> Batch:
    wrong = next((label for label in labels if not 0 <= label < classes), None)
    if wrong is not None:
        raise ValueError(f"has the label {wrong}, where there are {classes} classes")
    return pixels, labels


def parse_binary(contents: bytes, label_bytes: int, classes: int) -> Batch:
    """Records of `label_bytes` labels, of which the last is taken, and 3072 bytes of an image. Else ValueError."""
    record = label_bytes + PIXELS
    if not contents or len(contents) % record:
        raise ValueError(f"has {len(contents)} bytes, which is not a multiple of a record of {record}")
    table = np.frombuffer(contents, np.uint8).reshape(-1, record)
    return _checked(table[:, label_bytes:], table[:, label_bytes - 1].tolist(), classes)


class _DType:
    """Stands for numpy.dtype in a pickle: keeps what it is given."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        pass


class _Array:
    """Stands for a NumPy array in a pickle: keeps what it is given."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _NDArray:
    """Stands for the class numpy.ndarray in a pickle."""


def _reconstruct(*args: Any) -> _Array:
    return _Array()


class _Unpickler(pickle.Unpickler):
    """Knows the three names that the published pickles use, and has stand-ins for them: nothing of NumPy is called."""

    names = {
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): _NDArray,
        ("numpy", "dtype"): _DType,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.names[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no file of CIFAR does") from None


def _to_numpy(array: Any) -> np.ndarray:
    if not isinstance(array, _Array) or not isinstance(array.state, tuple) or len(array.state) != 5:
        raise ValueError("has no array of images")
    _, shape, dtype, fortran, data = array.state
    if not isinstance(dtype, _DType) or dtype.args[:1] not in (("u1",), (b"u1",)) or fortran:
        raise ValueError("has images of another type than bytes in C order")
    whole = isinstance(shape, tuple) and len(shape) == 2 and all(type(n) is int and n >= 0 for n in shape)
    if not whole or shape[1] != PIXELS or not isinstance(data, bytes) or len(data) != math.prod(shape):
        raise ValueError(f"has images of shape {shape}, not (N, {PIXELS})")
    return np.frombuffer(data, np.uint8).reshape(shape)


def parse_pickle(contents: bytes, label_key: bytes, classes: int) -> Batch:
    """A batch of the Python version. ValueError for anything else, of which nothing is executed."""
    try:
        batch = _Unpickler(io.BytesIO(contents), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise ValueError(f"is not a pickle of CIFAR: {error or type(error).__name__}") from None
    if not isinstance(batch, dict) or b"data" not in batch or label_key not in batch:
        raise ValueError(f"is not a pickle of CIFAR: no data and {label_key.decode()}")
    pixels, labels = _to_numpy(batch[b"data"]), batch[label_key]
    if not isinstance(labels, list) or len(labels) != len(pixels) or not all(type(n) is int for n in labels):
        raise ValueError(f"has no list of {len(pixels)} whole numbers as {label_key.decode()}")
    return _checked(pixels, labels, classes)


def read_members(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    """The contents of files in a .tar.gz; nothing is written. ValueError for a damaged archive or one without them."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if member.name in names and member.isreg():
                    file = archive.extractfile(member)
                    found[member.name] = file.read() if file else b""
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"cannot be unpacked ({error})") from None
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"has no {missing[0]}")
    return found
