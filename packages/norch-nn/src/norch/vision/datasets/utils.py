"""Files of data sets: fetched, checked and unpacked, by torchvision's names."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from ...hub import download_url_to_file

Name = str | os.PathLike[str]
T = TypeVar("T")

_COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_HAS_FILTERS = hasattr(tarfile, "data_filter")  # from Python 3.11.4 on
_TARS = {".tar", ".tgz", ".tbz", ".tbz2", ".txz"}


def calculate_md5(fpath: Name, chunk_size: int = 1 << 20) -> str:
    """The MD5 digest, in hexadecimal, of a file, of which `chunk_size` bytes are read at a time."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(fpath, "rb") as file:
        while chunk := file.read(chunk_size):
            digest.update(chunk)
    return digest.hexdigest()


def check_md5(fpath: Name, md5: str, **kwargs: Any) -> bool:
    """Whether a file has the digest `md5`. kwargs: those of `calculate_md5`."""
    return md5.lower() == calculate_md5(fpath, **kwargs)


def check_integrity(fpath: Name, md5: str | None = None) -> bool:
    """Whether there is a file, with the digest `md5` if that is given."""
    return os.path.isfile(fpath) and (md5 is None or check_md5(fpath, md5))


def download_url(
    url: str, root: Name, filename: Name | None = None, md5: str | None = None, max_redirect_hops: int = 3
) -> None:
    """Fetches `url` into the folder `root`, as `filename` or by the URL's own name, unless it is there.

    md5: what its digest must be, else RuntimeError. max_redirect_hops: ignored.
    """
    folder = Path(root).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (filename or os.path.basename(url))
    if check_integrity(path, md5):
        return
    download_url_to_file(url, str(path), progress=False)
    if not check_integrity(path, md5):
        raise RuntimeError(f"download_url(): {path} is not found or corrupted: its MD5 digest is not {md5}")


def extract_archive(from_path: Name, to_path: Name | None = None, remove_finished: bool = False) -> str:
    """Unpacks a tar or zip archive, or a file that gzip, bzip2 or xz has compressed, and returns the path of it.

    to_path: the folder, or the file; by default the archive's own folder, or its name without the suffix.
    remove_finished: whether the archive is removed then. Raises RuntimeError for other suffixes, and an error for a
    member of a tar archive that would lie elsewhere.
    """
    path = Path(from_path)
    target = path.parent if to_path is None else Path(to_path)
    suffixes = path.suffixes[-2:]
    if suffixes[-1:] == [".zip"]:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(target)
    elif ".tar" in suffixes or path.suffix in _TARS:
        with tarfile.open(path) as archive:
            _unpack(archive, target)
    elif path.suffix in _COMPRESSED:
        target = path.with_suffix("") if to_path is None else target
        with _COMPRESSED[path.suffix](path, "rb") as source, open(target, "wb") as file:
            shutil.copyfileobj(source, file)
    else:
        raise RuntimeError(f"extract_archive(): {path.name} is no tar, zip, gz, bz2 or xz file by its suffix")
    if remove_finished:
        path.unlink()
    return str(target)


def _unpack(archive: tarfile.TarFile, target: Path) -> None:
    if _HAS_FILTERS:
        return archive.extractall(target, filter="data")
    folder = os.path.realpath(target)
    for member in archive:
        path = os.path.realpath(os.path.join(folder, member.name))
        if os.path.commonpath([folder, path]) != folder or not (member.isfile() or member.isdir()):
            raise RuntimeError(f"extract_archive(): {member.name} is no file within the archive's folder")
        archive.extract(member, target)


def download_and_extract_archive(
    url: str,
    download_root: Name,
    extract_root: Name | None = None,
    filename: Name | None = None,
    md5: str | None = None,
    remove_finished: bool = False,
) -> None:
    """`download_url` into `download_root`, then `extract_archive` into `extract_root`, by default the same. Raises as
    they do.

    filename, md5, remove_finished: as of these.
    """
    name = filename or os.path.basename(url)
    download_url(url, download_root, name, md5)
    folder = Path(download_root).expanduser()
    extract_archive(folder / name, folder if extract_root is None else extract_root, remove_finished)


def list_dir(root: Name, prefix: bool = False) -> list[str]:
    """The folders in `root`, with `prefix` behind its path."""
    return [os.path.join(root, n) if prefix else n for n in os.listdir(root) if os.path.isdir(os.path.join(root, n))]


def list_files(root: Name, suffix: str | tuple[str, ...], prefix: bool = False) -> list[str]:
    """The files in `root` whose names end with `suffix`, with `prefix` behind its path."""
    found = [n for n in os.listdir(root) if n.endswith(suffix) and os.path.isfile(os.path.join(root, n))]
    return [os.path.join(root, n) if prefix else n for n in found]


def verify_str_arg(
    value: T, arg: str | None = None, valid_values: Iterable[T] | None = None, custom_msg: str | None = None
) -> T:
    """`value`, a string, if it is among `valid_values`. arg: its name, for the ValueError otherwise, which says
    `custom_msg` in its place."""
    if not isinstance(value, str):
        raise ValueError(f"expected a string for argument {arg}, got {type(value).__name__}")
    if valid_values is not None and value not in (known := list(valid_values)):
        raise ValueError(custom_msg or f"unknown value {value!r} for argument {arg}; valid values are {known}")
    return value
