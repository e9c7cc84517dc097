"""One process of the kit: `python -m norch.distributed.conformance.process NAME`."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import norch

from .. import engines
from ..launch import place
from ..store import PrefixStore, TCPStore
from . import LIMIT, STORE
from .cases import CASES, Kit


def main(name: str) -> None:
    host, _, port = os.environ[STORE].rpartition(":")
    store = TCPStore(host, int(port), timeout=LIMIT)
    where = place()
    kit = Kit(engines.find(name), where.rank, where.world_size, PrefixStore("engine", store), LIMIT)
    devices: Any = getattr(norch, kit.kind, None)
    if hasattr(devices, "set_device"):  # a device a process
        devices.set_device(where.local_rank % devices.device_count())
    for case, work in CASES.items():
        try:
            work(kit)
            error = ""
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        store.set(f"{case}/{kit.rank}", error)
        said = [store.get(f"{case}/{rank}", 2 * LIMIT) for rank in range(kit.size)]
        if any(b"hangs" in text for text in said):
            break
    while store.look("over") is None:
        time.sleep(0.01)
    sys.stdout.flush()
    os._exit(0)  # the last case leaves a communicator that was given up


if __name__ == "__main__":
    main(sys.argv[1])
