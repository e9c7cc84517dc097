"""CIFAR-10 and CIFAR-100, on small files that the tests write in the published formats."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from vision_files import archive, cifar_batches, cifar_files, md5, put, python2_pickle, records

from norch.vision.datasets import CIFAR10, CIFAR100, DatasetError

pytestmark = pytest.mark.usefixtures("on_host")


@pytest.mark.parametrize("kind", [CIFAR10, CIFAR100])
@pytest.mark.parametrize("pickled", [True, False])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("sub", ["", "name"])
def test_cifar_is_read_in_each_form(monkeypatch, tmp_path, kind, pickled, packed, sub):
    files, batches = cifar_files(kind, pickled)
    root = tmp_path / kind.__name__ if sub else tmp_path
    if packed:
        data = archive({"other/readme.html": b"hello", **files})
        attribute = "python_archive" if pickled else "binary_archive"
        name = getattr(kind, attribute)[0]
        monkeypatch.setattr(kind, attribute, (name, md5(data)))
        put(root, {name: data})
    else:
        for attribute in ("train_list", "test_list"):
            known = [(name, md5(files.get(f"{kind.base_folder}/{name}", b""))) for name, _ in getattr(kind, attribute)]
            monkeypatch.setattr(kind, attribute, known)
        for name, data in files.items():
            put((root / name).parent, {(root / name).name: data})
    for train, part in ((True, batches[:-1]), (False, batches[-1:])):
        data = kind(tmp_path, train=train)
        pixels = np.concatenate([b[0] for b in part])
        assert data.targets == [label for b in part for label in b[1]]
        assert data.data.shape == (len(pixels), 32, 32, 3)
        image, label = data[2]
        assert (image.shape, image.dtype, type(label)) == ((32, 32, 3), np.uint8, int)
        assert np.array_equal(image[5, 7], pixels[2].reshape(3, 32, 32)[:, 5, 7])
        assert repr(data).splitlines()[0] == f"Dataset {kind.__name__}"
        assert data.class_to_idx[data.classes[3]] == 3


def test_cifar_classes():
    assert len(CIFAR10.classes) == 10
    assert len(CIFAR100.classes) == 100
    assert sorted(CIFAR100.classes) == CIFAR100.classes


def test_cifar_checksums(tmp_path):
    files, _ = cifar_files(CIFAR10, True)
    for name, data in files.items():
        put((tmp_path / name).parent, {(tmp_path / name).name: data})
    with pytest.raises(DatasetError, match="data_batch_1 does not have the checksum"):
        CIFAR10(tmp_path)
    assert len(CIFAR10(tmp_path, verify=False)) == 30
    other = tmp_path / "other"
    put(other, {"cifar-10-python.tar.gz": archive(files)})
    with pytest.raises(DatasetError, match=r"cifar-10-python.tar.gz does not have the checksum"):
        CIFAR10(other)
    assert len(CIFAR10(other, verify=False)) == 30
    put(other, {"cifar-10-python.tar.gz": archive(files)[:-3000]})
    with pytest.raises(DatasetError, match=r"cifar-10-python.tar.gz cannot be unpacked"):
        CIFAR10(other, verify=False)
    put(other, {"cifar-10-python.tar.gz": archive({"x": b""})})
    with pytest.raises(DatasetError, match="has no cifar-10-batches-py/data_batch_1"):
        CIFAR10(other, verify=False)


def read_pickle(tmp_path, contents):
    put(tmp_path / "cifar-100-python", {"test": contents})
    return CIFAR100(tmp_path, train=False, verify=False)


class Bomb:
    def __reduce__(self):
        return open, ("executed", "w")


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_is_never_executed(tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    for value in (Bomb(), {b"data": Bomb(), b"fine_labels": [1]}):
        with pytest.raises(DatasetError, match="which no file of CIFAR does"):
            read_pickle(tmp_path, pickle.dumps(value, protocol))
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"not a pickle",
        pickle.dumps([1, 2]),
        pickle.dumps({b"data": 3, b"fine_labels": [1]}),
        pickle.dumps({b"data": b"x" * 3072, b"fine_labels": [1]}),
        b"\x80\x02cos\nsystem\nU\x04trueR.",
        b"\x80\x02cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R.",
        b"\x80\x02cnumpy\nndarray\n)\x81N\x86b.",
        b"\x80\x02U\x01aQ.",
    ],
)
def test_other_pickles_are_refused(tmp_path, contents):
    with pytest.raises(DatasetError, match="cifar-100-python/test"):
        read_pickle(tmp_path, contents)


def test_damaged_pickles_are_refused(tmp_path):
    pixels, labels, _ = next(cifar_batches(1, 100))
    good = python2_pickle(pixels, labels, b"fine_labels")
    assert read_pickle(tmp_path, good).targets == labels
    draws = np.random.default_rng(2)
    header = good.index(pixels.tobytes())
    for _ in range(300):
        data = bytearray(good)
        data[draws.integers(header)] = draws.integers(256)
        try:
            assert len(read_pickle(tmp_path, bytes(data))) == 6
        except DatasetError:
            pass
    for bad, why in (
        (python2_pickle(pixels, labels[:-1], b"fine_labels"), "no list of 6 whole numbers"),
        (python2_pickle(pixels, [100] * 6, b"fine_labels"), "has the label 100, where there are 100 classes"),
        (python2_pickle(pixels[:, :-1], labels, b"fine_labels"), r"images of shape \(6, 3071\)"),
        (python2_pickle(pixels, labels), "no data and fine_labels"),
        (good[:-9000], "is not a pickle of CIFAR"),
    ):
        with pytest.raises(DatasetError, match=why):
            read_pickle(tmp_path, bad)


def test_binary_records_are_checked(tmp_path):
    pixels, labels, coarse = next(cifar_batches(1, 100))
    folder = tmp_path / "cifar-100-binary"
    put(folder, {"test.bin": records(pixels, coarse, labels)[:-1]})
    with pytest.raises(DatasetError, match="not a multiple of a record of 3074"):
        CIFAR100(tmp_path, train=False)
    put(folder, {"test.bin": records(pixels, coarse, [200] * 6)})
    with pytest.raises(DatasetError, match="has the label 200"):
        CIFAR100(tmp_path, train=False)
