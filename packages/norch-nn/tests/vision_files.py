"""Small files in the formats in which the image data sets are published."""

import hashlib
import io
import struct
import tarfile

import numpy as np

from norch.vision.datasets import CIFAR10

NAMES = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
]


def md5(data):
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def idx(array):
    return struct.pack(f">I{array.ndim}I", 0x800 | array.ndim, *array.shape) + array.tobytes()


def mnist_files(train=20, test=8):
    """Contents by name, and (images, labels) of the training and the test set."""
    draws = np.random.default_rng(0)
    arrays = []
    for n in (train, test):
        arrays.append(draws.integers(0, 256, (n, 28, 28), dtype=np.uint8))
        arrays.append((np.arange(n) % 10).astype(np.uint8))
    return {name: idx(array) for name, array in zip(NAMES, arrays)}, (arrays[:2], arrays[2:])


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def cifar_batches(count, labels):
    """(pixels, labels, coarse labels) of each batch."""
    draws = np.random.default_rng(1)
    for _ in range(count):
        pixels = draws.integers(0, 256, (6, 3072), dtype=np.uint8)
        yield pixels, draws.integers(0, labels, 6).tolist(), draws.integers(0, 20, 6).tolist()


def text(value):
    return b"U" + bytes([len(value)]) + value


def whole(value):
    return b"J" + struct.pack("<i", value)


def python2_pickle(pixels, labels, key=b"labels"):
    """What cPickle of Python 2 wrote at protocol 2, opcode by opcode."""
    dtype = (
        b"cnumpy\ndtype\nq\x09" + text(b"u1") + b"K\x00K\x01\x87q\x0aRq\x0b(K\x03" + text(b"|") + b"NNN"
    ) + b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x0cb"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x06cnumpy\nndarray\nq\x07K\x00\x85q\x08"
        + text(b"b") + b"\x87Rq\x0d(K\x01" + whole(pixels.shape[0]) + whole(pixels.shape[1]) + b"\x86"
        + dtype + b"\x89T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    )  # fmt: skip
    numbers = b"](" + b"".join(b"K" + bytes([n]) for n in labels) + b"e"
    entries = text(b"batch_label") + text(b"batch 1 of 1") + text(key) + numbers + text(b"data") + array
    return b"\x80\x02}q\x01(" + entries + b"u."


def records(pixels, *labels):
    return np.concatenate([*(np.array(part, np.uint8)[:, None] for part in labels), pixels], 1).tobytes()


def archive(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def cifar_files(kind, pickled):
    names = [name for name, _ in kind.train_list + kind.test_list]
    batches = list(cifar_batches(len(names), len(kind.classes)))
    files = {}
    for name, (pixels, labels, coarse) in zip(names, batches):
        if pickled:
            files[f"{kind.base_folder}/{name}"] = python2_pickle(pixels, labels, kind.label_key)
        else:
            parts = (labels,) if kind is CIFAR10 else (coarse, labels)
            files[f"{kind.binary_folder}/{name}.bin"] = records(pixels, *parts)
    return files, batches
