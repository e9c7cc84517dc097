"""Finding, checking and unpacking the files of data sets."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

CHUNK = 1 << 20


class DatasetError(RuntimeError):
    """A file of a data set is missing, damaged, or could not be downloaded."""


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def file_md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def find(folders: Iterable[Path], names: Sequence[str]) -> Path | None:
    """The first of the files `names` in the first folder that has one."""
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return folder / name
    return None


def not_found(dataset: str, name: str, folders: Sequence[Path], url: str, package: str | None) -> DatasetError:
    lines = [f"{dataset}: {name} was not found. Looked in:"]
    lines += [f"    {folder}" for folder in folders]
    lines += ["To have it, either", "  - pass download=True where there is a network, or"]
    lines += [f"  - put {url}", f"    into {folders[0]}" + (", or" if package else "")]
    if package:
        lines.append(f"  - on Debian and Ubuntu: apt install {package}")
    return DatasetError("\n".join(lines))


def damaged(dataset: str, path: Path, why: str) -> DatasetError:
    return DatasetError(f"{dataset}: {path} {why}; delete it and get it again, for instance with download=True")


def wrong_checksum(dataset: str, path: Path) -> DatasetError:
    return DatasetError(
        f"{dataset}: {path} does not have the checksum of the published file. If it is damaged, delete it and get it "
        "again, for instance with download=True; to read a file of your own, pass verify=False"
    )


def read_gzip_or_plain(dataset: str, path: Path, packed: str | None, plain: str | None, verify: bool) -> bytes:
    """The contents of `path`, unpacked if its name ends with .gz.

    `packed` and `plain` are the md5 of the published file before and after unpacking, None where not known. A .gz may
    match either, since distributions pack again. Raises DatasetError for a file that matches neither.
    """
    data = path.read_bytes()
    if path.suffix == ".gz":
        known = packed is not None and md5(data) == packed
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise damaged(dataset, path, f"cannot be unpacked ({error})") from None
        known = known or (packed is None and plain is None)
    else:
        known = plain is None
    if verify and not known and md5(data) != plain:
        raise wrong_checksum(dataset, path)
    return data
