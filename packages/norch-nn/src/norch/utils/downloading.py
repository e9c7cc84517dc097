"""Getting a file by URL: checked, and whole or not there at all."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

CHUNK = 1 << 20
TIMEOUT = 30.0  # seconds without a byte


class WrongHash(OSError):
    """What came is not the file that was asked for."""


class _Progress:
    """A line on a terminal that is written over, elsewhere one line at the end."""

    def __init__(self, name: str, total: int | None, shown: bool) -> None:
        self.name, self.total, self.done = name, total, 0
        self.start = self.last = time.monotonic()
        self.shown, self.live = shown, shown and sys.stderr.isatty()

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if self.live and now - self.last > 0.1:
            self.last = now
            self._write("\r")

    def close(self) -> None:
        if self.shown:
            self._write("\r" if self.live else "")
            print(file=sys.stderr)

    def _write(self, start: str) -> None:
        size = f"{self.done / 1e6:.1f}"
        if self.total:
            size += f" of {self.total / 1e6:.1f}"
        speed = self.done / 1e6 / max(time.monotonic() - self.start, 1e-3)
        share = f"{self.done / self.total:4.0%} " if self.total else ""
        print(f"{start}{self.name}  {share}{size} MB, {speed:.1f} MB/s ", end="", file=sys.stderr, flush=True)


def fetch(url: str, target: Path, digest: str, algorithm: str, progress: bool = True) -> None:
    """Writes what `url` gives to `target`, if its hash by `algorithm` begins with the hexadecimal digits `digest`.

    A file that was there before stays until the new one is complete. Raises OSError for what does not come,
    WrongHash for something else, ValueError for what is no URL.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "norch"})
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        found = hashlib.new(algorithm, usedforsecurity=False)
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            length = response.headers.get("Content-Length", "")
            line = _Progress(target.name, int(length) if length.isdigit() else None, progress)
            try:
                while chunk := response.read(CHUNK):
                    file.write(chunk)
                    found.update(chunk)
                    line.add(len(chunk))
            finally:
                line.close()
            file.flush()
            os.fsync(file.fileno())
        if not found.hexdigest().startswith(digest):
            raise WrongHash(f"what came ({line.done} bytes) does not have the {algorithm} {digest}")
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
