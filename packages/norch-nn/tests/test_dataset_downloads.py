"""Downloads of image data sets, from a server of the tests."""

from __future__ import annotations

import pytest
from vision_files import NAMES, archive, cifar_files, md5, put

from norch.vision.datasets import CIFAR10, CIFAR100, MNIST, DatasetError
from norch.vision.datasets import download as downloads

pytestmark = pytest.mark.usefixtures("no_distribution", "on_host")


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


def test_cifar_download(monkeypatch, server, tmp_path):
    files, _ = cifar_files(CIFAR100, False)
    data = archive(files)
    monkeypatch.setattr(CIFAR100, "binary_archive", ("cifar-100-binary.tar.gz", md5(data)))
    monkeypatch.setattr(CIFAR100, "url", server.url)
    server.files["/cifar-100-binary.tar.gz"] = data
    assert len(CIFAR100(tmp_path, download=True)) == 6
    assert len(CIFAR100(tmp_path, train=False, download=True)) == 6
    assert len(server.asked) == 1
