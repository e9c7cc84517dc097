"""Getting a file by URL: checked, and whole or not there at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .files import CHUNK, DatasetError

TIMEOUT = 30.0  # seconds without a byte
ROUNDS = 2  # over all the mirrors
PAUSE = 1.0  # seconds between the rounds


class _Progress:
    """A line on a terminal that is written over, elsewhere one line at the end."""

    def __init__(self, name: str, total: int | None) -> None:
        self.name, self.total, self.done = name, total, 0
        self.start = self.shown = time.monotonic()
        self.live = sys.stderr.isatty()

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if self.live and now - self.shown > 0.1:
            self.shown = now
            self._write("\r")

    def close(self) -> None:
        self._write("\r" if self.live else "")
        print(file=sys.stderr)

    def _write(self, start: str) -> None:
        size = f"{self.done / 1e6:.1f}"
        if self.total:
            size += f" of {self.total / 1e6:.1f}"
        speed = self.done / 1e6 / max(time.monotonic() - self.start, 1e-3)
        share = f"{self.done / self.total:4.0%} " if self.total else ""
        print(f"{start}{self.name}  {share}{size} MB, {speed:.1f} MB/s ", end="", file=sys.stderr, flush=True)


def _fetch(url: str, target: Path, digest: str) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "norch"})
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        found = hashlib.md5(usedforsecurity=False)
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            length = response.headers.get("Content-Length", "")
            progress = _Progress(target.name, int(length) if length.isdigit() else None)
            try:
                while chunk := response.read(CHUNK):
                    file.write(chunk)
                    found.update(chunk)
                    progress.add(len(chunk))
            finally:
                progress.close()
            file.flush()
            os.fsync(file.fileno())
        if found.hexdigest() != digest:
            raise OSError(f"what came ({progress.done} bytes) does not have the md5 {digest}")
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def download(urls: Sequence[str], target: Path, digest: str, dataset: str, package: str | None = None) -> None:
    """Writes what one of `urls` gives to `target`, if its md5 is `digest`.

    A file that was there before stays until the new one is complete. Raises DatasetError once every URL has failed
    twice, with the reason of each.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    failures: dict[str, str] = {}
    for number in range(ROUNDS):
        if number:
            time.sleep(PAUSE)
        for url in urls:
            try:
                return _fetch(url, target, digest)
            except (OSError, ValueError, http.client.HTTPException) as error:  # URLError and time-outs are OSErrors
                failures[url] = str(error) or type(error).__name__
    reasons = "".join(f"\n    {url}: {why}" for url, why in failures.items())
    raise DatasetError(
        f"{dataset}: {target.name} could not be downloaded.{reasons}\n"
        f"Without a network, bring the file from elsewhere and put it into {target.parent} (md5 {digest})"
        + (f", or on Debian and Ubuntu: apt install {package}" if package else "")
    )
