"""Files of data sets, fetched from files."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile

import pytest

from norch.vision.datasets import utils

TEXT = b"label 1\n" * 100
MD5 = hashlib.md5(TEXT).hexdigest()


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.txt").write_bytes(TEXT)
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("in/a.txt", TEXT)
    for name in ("a.tar", "a.tar.gz", "a.tgz"):
        with tarfile.open(folder / name, "w:gz" if "g" in name else "w") as archive:
            entry = tarfile.TarInfo("in/a.txt")
            entry.size = len(TEXT)
            archive.addfile(entry, io.BytesIO(TEXT))
    (folder / "b.txt.gz").write_bytes(gzip.compress(TEXT))
    return folder


def test_digests(source):
    assert utils.calculate_md5(source / "a.txt", chunk_size=7) == MD5
    assert utils.check_md5(source / "a.txt", MD5.upper())
    assert utils.check_integrity(source / "a.txt")
    assert not utils.check_integrity(source / "a.txt", "0" * 32)
    assert not utils.check_integrity(source / "none.txt")


def test_a_file_is_fetched_once_and_checked(source, tmp_path):
    url = (source / "a.txt").as_uri()
    utils.download_url(url, tmp_path / "data", md5=MD5)
    assert (tmp_path / "data" / "a.txt").read_bytes() == TEXT
    (source / "a.txt").unlink()
    utils.download_url(url, tmp_path / "data", md5=MD5)
    other = (source / "b.txt.gz").as_uri()
    with pytest.raises(RuntimeError, match="corrupted"):
        utils.download_url(other, tmp_path / "data", "b", md5=MD5)


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tgz"])
def test_archives(name, source, tmp_path):
    utils.download_and_extract_archive((source / name).as_uri(), tmp_path / "data", remove_finished=True)
    assert (tmp_path / "data" / "in" / "a.txt").read_bytes() == TEXT
    assert utils.list_dir(tmp_path / "data") == ["in"]
    assert utils.list_files(tmp_path / "data" / "in", ".txt", prefix=True) == [str(tmp_path / "data" / "in" / "a.txt")]
    assert utils.extract_archive(source / name, tmp_path / "other") == str(tmp_path / "other")


@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")
@pytest.mark.parametrize("name", ["../out.txt", "/out.txt", "in/../../out.txt"])
def test_no_file_goes_elsewhere(name, tmp_path, monkeypatch):
    """By a Python too that has no filters."""
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        for member in ("./in.txt", name):
            info = tarfile.TarInfo(member)
            info.size = len(TEXT)
            archive.addfile(info, io.BytesIO(TEXT))
    monkeypatch.setattr(utils, "_HAS_FILTERS", False)
    with pytest.raises(RuntimeError, match="out.txt is no file within"):
        utils.extract_archive(tmp_path / "bad.tar", tmp_path / "folder")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["in.txt"]


def test_compressed_files_and_others(source):
    found = utils.extract_archive(source / "b.txt.gz")
    assert found == str(source / "b.txt")
    assert (source / "b.txt").read_bytes() == TEXT
    with pytest.raises(RuntimeError, match="by its suffix"):
        utils.extract_archive(source / "a.txt")


def test_arguments():
    assert utils.verify_str_arg("train", "split", ("train", "test")) == "train"
    with pytest.raises(ValueError, match="'val' for argument split"):
        utils.verify_str_arg("val", "split", ("train", "test"))
    with pytest.raises(ValueError, match="expected a string"):
        utils.verify_str_arg(3, "split")
