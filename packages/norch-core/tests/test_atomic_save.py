"""A save that is killed, interrupted or fails leaves the checkpoint that was there, whole."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import norch

HARNESS = Path(__file__).with_name("kill_harness.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("how", "least"),
    [
        pytest.param("kill at every line", 60, marks=pytest.mark.slow),
        ("interrupt at every line", 60),
        ("kill at every line, named", 60),
        pytest.param("interrupt at every line, named", 60, marks=pytest.mark.slow),
        pytest.param("kill at random", 30, marks=pytest.mark.slow),
        pytest.param("interrupt at random", 30, marks=pytest.mark.slow),
        ("out of room", 6),
    ],
)
def test_a_save_that_is_broken_off_leaves_the_old_checkpoint(how: str, least: int, tmp_path: Path) -> None:
    """The reference backend has no threads, so that the harness may fork."""
    environment = {**os.environ, "NORCH_BACKEND_CPU": "numpy", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, HARNESS, how, tmp_path], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= least


def test_what_is_written_is_on_the_disk_before_it_has_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, calls = tmp_path / "x.pt", []
    norch.save(1, path)
    fsync, replace = os.fsync, os.replace

    def seen(handle: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else f"file of {os.fstat(handle).st_size}")
        fsync(handle)

    def renamed(source: str, target: str) -> None:
        calls.append(f"{os.path.getsize(source)} as {os.path.basename(target)}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", seen)
    monkeypatch.setattr(os, "replace", renamed)
    norch.save(norch.ones(1000), path)
    size = path.stat().st_size
    assert calls == [f"file of {size}", f"{size} as x.pt", "folder"]


@pytest.mark.parametrize("name", ["fsync", "replace", "fchmod"])
def test_a_call_that_fails(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.pt"
    norch.save(1, path)

    def fail(*_: Any) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        with pytest.raises(OSError, match="the disk is gone"):
            norch.save(2, path)
    assert norch.load(path) == 1
    assert os.listdir(tmp_path) == ["x.pt"]


def test_permissions_are_those_of_open(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        norch.save(1, tmp_path / "new")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o604)
    norch.save(2, tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604


def test_a_protected_file_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.pt"
    norch.save(1, path)
    monkeypatch.setattr(os, "access", lambda *_: False)  # as it is for all but root, whom permissions do not bind
    with pytest.raises(PermissionError):
        norch.save(2, path)
    assert norch.load(path) == 1


@pytest.mark.parametrize("missing", ["O_TMPFILE", "link", "fchmod", "O_DIRECTORY"])
def test_where_the_system_lacks_something(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("not here")

    if missing == "link":
        monkeypatch.setattr(os, "link", fail)
    else:
        monkeypatch.delattr(os, missing, raising=False)
    for i in range(2):
        norch.save(i, tmp_path / "x.pt")
        assert norch.load(tmp_path / "x.pt") == i
    assert os.listdir(tmp_path) == ["x.pt"]


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    link, target = tmp_path / "latest.pt", tmp_path / "runs" / "1.pt"
    link.symlink_to(target)
    norch.save("through a dangling link", link)
    assert link.is_symlink()
    assert norch.load(target) == "through a dangling link"
    norch.save("again", link)
    assert link.is_symlink()
    assert norch.load(target) == "again"
    assert os.listdir(tmp_path / "runs") == ["1.pt"]


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder to write to: '.*none'"):
        norch.save(1, tmp_path / "none" / "x.pt")
    for path in (tmp_path, f"{tmp_path}/", f"{tmp_path}/x/"):
        with pytest.raises(IsADirectoryError):
            norch.save(1, path)
    assert os.listdir(tmp_path) == []
    long = tmp_path / ("x" * 255)
    norch.save(1, long)
    assert norch.load(long) == 1


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    norch.save(1, "x.pt")
    assert norch.load("x.pt") == norch.load(Path("x.pt")) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
def test_what_a_killed_save_left_is_removed_by_the_next_but_not_what_is_being_written(tmp_path: Path) -> None:
    import fcntl

    path = tmp_path / "model.pt"
    left, written, other, unlike = (
        tmp_path / name
        for name in (
            f".model.pt.{'0' * 16}.tmp",
            f".model.pt.{'1' * 16}.tmp",
            f".mine.pt.{'0' * 16}.tmp",
            ".model.pt.tmp",
        )
    )
    for file in (left, written, other, unlike):
        file.write_bytes(b"half")
    with written.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        norch.save(1, path)
        assert sorted(tmp_path.iterdir()) == sorted([path, written, other, unlike])
    norch.save(2, path)
    assert sorted(tmp_path.iterdir()) == sorted([path, other, unlike])
    assert norch.load(path) == 2


def test_saves_to_one_path_at_once_do_not_hurt_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.pt"
    monkeypatch.setattr(os, "O_TMPFILE", 0, raising=False)  # as where files cannot be unnamed
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                norch.save(norch.full((100,), number), path)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert os.listdir(tmp_path) == ["model.pt"]
    assert norch.load(path).shape == (100,)
