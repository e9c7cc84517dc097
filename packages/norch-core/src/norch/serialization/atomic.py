"""Files that are there completely or not at all."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def replace(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Makes what `write(file)` writes the contents of `path` in one step: interrupted anywhere, the old ones are whole.

    They go to a new file beside the target, then to the disk, then to the target's name, and so does the folder's
    entry. A link is followed; permissions are those that open() would give or leave. What is not a regular file (a
    pipe, a device) is written as it is.
    """
    given = os.fsdecode(path)
    target = os.path.realpath(given)
    folder, name = os.path.split(target)
    try:
        old: os.stat_result | None = os.stat(target)
    except FileNotFoundError:
        old = None
    if not os.path.basename(given) or (old is not None and stat.S_ISDIR(old.st_mode)):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), given)
    if old is not None and not stat.S_ISREG(old.st_mode):
        with open(target, "wb") as file:
            write(file)
        return
    if old is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), given)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to write to", folder)
    # Cut, since the longest name that a file system takes may be the target's.
    prefix = f".{name[:50]}."
    _remove_left(folder, prefix)
    temporary = os.path.join(folder, f"{prefix}{os.urandom(8).hex()}.tmp")
    mode = None if old is None else stat.S_IMODE(old.st_mode)
    try:
        if not _write_unnamed(folder, temporary, mode, write, target):
            with _open_named(temporary) as file:
                _fill(file, mode, write)
                if fcntl is not None:
                    os.replace(temporary, target)
            if fcntl is None:  # Windows renames no open file
                os.replace(temporary, target)
    except BaseException:  # Ctrl-C too
        try:
            os.unlink(temporary)
        except FileNotFoundError:  # it does not exist yet, or has its name already
            pass
        raise
    _sync_folder(folder)


def _lock(file: BinaryIO, wait: bool = True) -> bool:
    """Whether this process has the file to itself now. Its end, however it comes, gives the file free."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another has it, or the file system has no locks
        return False
    return True


def _remove_left(folder: str, prefix: str) -> None:
    """Removes the temporary files of saves of the same target whose process was killed."""
    try:
        names = os.listdir(folder)
    except OSError:  # one that may be written to, but not listed
        return
    for name in names:
        if name.startswith(prefix) and re.fullmatch(r"[0-9a-f]{16}\.tmp", name[len(prefix) :]):
            left = os.path.join(folder, name)
            try:
                with open(left, "rb") as file:
                    if _lock(file, wait=False):
                        os.unlink(left)
            except OSError:  # another save was faster
                continue


def _open_named(path: str) -> BinaryIO:
    """A new file that no other save takes for one that was left."""
    while True:
        file = open(path, "xb", buffering=0)  # noqa: SIM115
        if not _lock(file) or os.path.exists(path):
            return file
        file.close()  # removed before it was locked


def _write_unnamed(folder: str, name: str, mode: int | None, write: Callable[[BinaryIO], object], target: str) -> bool:
    """Where Linux can: writes a file that gets its name when it is whole, so that a killed process leaves nothing."""
    flag = getattr(os, "O_TMPFILE", 0)
    if not flag or not os.path.isdir("/proc/self/fd"):
        return False
    try:
        unnamed = open(folder, "wb", buffering=0, opener=lambda at, _: os.open(at, flag | os.O_WRONLY, 0o666))  # noqa: SIM115
    except OSError:  # a file system that cannot
        return False
    with unnamed as file:
        _lock(file)
        _fill(file, mode, write)
        try:  # with src_dir_fd, link() follows the link that /proc shows
            os.link(f"/proc/self/fd/{file.fileno()}", name, src_dir_fd=file.fileno(), follow_symlinks=True)
        except OSError:
            return False
        os.replace(name, target)
    return True


def _fill(file: BinaryIO, mode: int | None, write: Callable[[BinaryIO], object]) -> None:
    if mode is not None and hasattr(os, "fchmod"):
        os.fchmod(file.fileno(), mode)
    write(file)
    os.fsync(file.fileno())


def _sync_folder(folder: str) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot
            raise
    finally:
        os.close(handle)
