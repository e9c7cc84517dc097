"""Stores: what one process sets, others see."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from norch.distributed import DistributedError, FileStore, HashStore, PrefixStore, Store, TCPStore


def hash_store(tmp_path: Path) -> tuple[Store, Store]:
    store = HashStore()
    return store, store


def file_store(tmp_path: Path) -> tuple[Store, Store]:
    return FileStore(str(tmp_path / "store"), 2), FileStore(str(tmp_path / "store"), 2)


def tcp_store(tmp_path: Path) -> tuple[Store, Store]:
    master = TCPStore("127.0.0.1", 0, 2, is_master=True)
    return master, TCPStore("127.0.0.1", master.port, 2)


def prefix_store(tmp_path: Path) -> tuple[Store, Store]:
    master, other = tcp_store(tmp_path)
    master.set("key", "of nobody")
    return PrefixStore("a", PrefixStore("b", master)), PrefixStore("a", PrefixStore("b", other))


@pytest.mark.parametrize("make", [hash_store, file_store, tcp_store, prefix_store])
def test_values_of_one_are_seen_by_the_other(make: Callable[[Path], tuple[Store, Store]], tmp_path: Path) -> None:
    one, other = make(tmp_path)
    assert other.look("key") is None
    assert not other.check(["key"])
    one.set("key", "text")
    assert other.get("key") == b"text"
    other.set("key", bytes(range(256)))
    assert one.get("key") == bytes(range(256))
    assert one.check(["key"])
    threading.Timer(0.1, lambda: one.set("later", b"")).start()
    other.wait(["key", "later"], 5)
    begin = time.monotonic()
    with pytest.raises(DistributedError, match=r"no process gave '(b/a/|a/)?never' a value within 0.1 s"):
        other.get("never", 0.1)
    assert time.monotonic() - begin < 2
    one.set_timeout(datetime.timedelta(seconds=0.1))
    with pytest.raises(DistributedError, match="within 0.1 s"):
        one.get("never")
    with pytest.raises(ValueError, match="above 0"):
        one.set_timeout(0)


@pytest.mark.parametrize("make", [hash_store, file_store, tcp_store])
def test_counts_lose_nothing(make: Callable[[Path], tuple[Store, Store]], tmp_path: Path) -> None:
    stores = make(tmp_path)
    seen: list[int] = []

    def count(store: Store) -> None:
        seen.extend(store.add("count", 1) for _ in range(20))

    threads = [threading.Thread(target=count, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 41))
    assert stores[0].add("count", 2**40) == 40 + 2**40


def test_a_master_that_is_not_there_is_named() -> None:
    free = TCPStore("127.0.0.1", 0, is_master=True)
    port = free.port
    free.close()
    with pytest.raises(DistributedError, match=rf"no process serves it at 127.0.0.1:{port} within 0.2 s"):
        TCPStore("127.0.0.1", port, timeout=0.2)


def test_a_port_that_is_taken_is_named() -> None:
    first = TCPStore("127.0.0.1", 0, is_master=True)
    with pytest.raises(DistributedError, match=rf"port {first.port} of 127.0.0.1 cannot be used"):
        TCPStore("127.0.0.1", first.port, is_master=True)
    first.close()


def test_a_master_that_leaves_is_named() -> None:
    master, other = tcp_store(Path())
    assert isinstance(master, TCPStore)
    other.set("key", "value")
    master.close()
    with pytest.raises(DistributedError, match="does not answer"):
        _ask_twice(other)


def _ask_twice(store: Any) -> None:
    """The first call may still be answered by a connection that is open."""
    store.look("key")
    store.look("key")
