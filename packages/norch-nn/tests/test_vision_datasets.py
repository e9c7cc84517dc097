"""The image data sets, on small files that the tests write in the published formats."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import pickle
import struct
import tarfile
import threading

import numpy as np
import pytest

import norch
from norch.utils.data import DataLoader
from norch.vision import datasets, transforms
from norch.vision.datasets import CIFAR10, CIFAR100, KMNIST, MNIST, DatasetError, FashionMNIST
from norch.vision.datasets import download as downloads

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


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch, tmp_path):
    """No folder of a distribution, and files of this test's own with known checksums."""
    monkeypatch.setattr(FashionMNIST, "package_folder", str(tmp_path / "distribution"))
    monkeypatch.setattr(downloads, "PAUSE", 0.0)


@pytest.fixture
def small(monkeypatch):
    """MNIST whose published files are those of `mnist_files`."""
    contents, arrays = mnist_files()
    packed = {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in contents.items()}
    for kind in (MNIST, FashionMNIST):
        monkeypatch.setattr(kind, "resources", [(name, md5(data)) for name, data in packed.items()])
        monkeypatch.setattr(kind, "unpacked_md5", {name: md5(data) for name, data in contents.items()})
    return contents, packed, arrays


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


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


def test_files_packed_anew_are_known_by_their_contents(small, tmp_path):
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


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        data = self.server.files.get(self.path)
        if callable(data):
            data = data()
        if data is None:
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(self.server.claims.get(self.path, len(data))))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files, server.asked, server.claims = {}, [], {}
        server.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_download(small, server, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(MNIST, "mirrors", [server.url + "gone/", server.url])
    server.files = {f"/{name}": data for name, data in small[1].items()}
    data = MNIST(tmp_path, download=True)
    assert len(data) == 20
    raw = tmp_path / "MNIST" / "raw"
    assert sorted(path.name for path in raw.iterdir()) == sorted(small[1])
    assert "train-images-idx3-ubyte.gz" in capsys.readouterr().err
    asked = len(server.asked)
    assert asked == 8
    assert len(MNIST(tmp_path, train=False, download=True)) == 8
    assert len(server.asked) == asked
    (raw / f"{NAMES[2]}.gz").write_bytes(b"damaged")
    assert len(MNIST(tmp_path, train=False, download=True)) == 8
    assert len(server.asked) == asked + 2


def test_a_second_try_may_succeed(small, server, monkeypatch, tmp_path):
    monkeypatch.setattr(MNIST, "mirrors", [server.url])
    server.files = {f"/{name}": data for name, data in small[1].items()}
    whole, parts = small[1][NAMES[0] + ".gz"], [b"half", None]
    server.files[f"/{NAMES[0]}.gz"] = lambda: parts.pop() if parts else whole
    monkeypatch.setattr(downloads, "ROUNDS", 3)
    assert len(MNIST(tmp_path, download=True)) == 20


def test_a_download_that_fails_leaves_what_there_was(small, server, monkeypatch, tmp_path):
    monkeypatch.setattr(MNIST, "mirrors", [server.url + "a/", server.url + "b/"])
    name = NAMES[0] + ".gz"
    server.files = {f"/a/{name}": small[1][name][:50], f"/b/{name}": b"<html>sign in</html>"}
    server.claims = {f"/a/{name}": len(small[1][name])}
    put(tmp_path / "MNIST" / "raw", {name: b"before"})
    with pytest.raises(DatasetError) as caught:
        MNIST(tmp_path, download=True)
    text = str(caught.value)
    assert server.url + "a/" + name in text
    assert server.url + "b/" + name in text
    assert "what came (20 bytes) does not have the md5" in text
    assert str(tmp_path / "MNIST" / "raw") in text
    assert [path.name for path in (tmp_path / "MNIST" / "raw").iterdir()] == [name]
    assert (tmp_path / "MNIST" / "raw" / name).read_bytes() == b"before"


def test_no_server_is_explained(monkeypatch, server, tmp_path):
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/")
    with pytest.raises(DatasetError, match=r"127.0.0.1:9/cifar-10-binary.tar.gz: .*refused"):
        CIFAR10(tmp_path, download=True)


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


def test_cifar_download(monkeypatch, server, tmp_path):
    files, _ = cifar_files(CIFAR100, False)
    data = archive(files)
    monkeypatch.setattr(CIFAR100, "binary_archive", ("cifar-100-binary.tar.gz", md5(data)))
    monkeypatch.setattr(CIFAR100, "url", server.url)
    server.files["/cifar-100-binary.tar.gz"] = data
    assert len(CIFAR100(tmp_path, download=True)) == 6
    assert len(CIFAR100(tmp_path, train=False, download=True)) == 6
    assert len(server.asked) == 1


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
        (good[:-9000], "is no pickle of CIFAR"),
    ):
        with pytest.raises(DatasetError, match=why):
            read_pickle(tmp_path, bad)


def test_binary_records_are_checked(tmp_path):
    pixels, labels, coarse = next(cifar_batches(1, 100))
    folder = tmp_path / "cifar-100-binary"
    put(folder, {"test.bin": records(pixels, coarse, labels)[:-1]})
    with pytest.raises(DatasetError, match="no multiple of a record of 3074"):
        CIFAR100(tmp_path, train=False)
    put(folder, {"test.bin": records(pixels, coarse, [200] * 6)})
    with pytest.raises(DatasetError, match="has the label 200"):
        CIFAR100(tmp_path, train=False)


def test_vision_dataset():
    with pytest.raises(ValueError, match="either transforms"):
        datasets.VisionDataset("x", transforms=min, transform=abs)
    with pytest.raises(NotImplementedError):
        datasets.VisionDataset("x")[0]
