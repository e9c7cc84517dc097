"""The kit for engines: MPI passes it, and each of some broken engines fails the case that is about its fault."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import norch
from norch.distributed.conformance import cases
from norch.distributed.conformance.cases import CASES, Kit
from norch.distributed.engine import Communicator, Engine, Request
from norch.distributed.store import HashStore

FOLD = {
    "sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
}  # fmt: skip


class Meeting(Request):
    """Done once all members have brought something; then `take` gets it all."""

    def __init__(self, place: dict[int, Any], n: int, take: Any) -> None:
        self.place, self.n, self.take = place, n, take

    def test(self) -> bool:
        if self.take is not None and len(self.place) == self.n:
            self.take([self.place[i] for i in range(self.n)])
            self.take = None
        return self.take is None


class Threads(Communicator):
    """Members are threads; what they bring lies in one dict."""

    def __init__(self, shared: Any, name: str, ranks: list[int], rank: int, fault: str) -> None:
        self.shared, self.name, self.fault = shared, name, fault
        self.n, self.member = len(ranks), list(ranks).index(rank)
        self.seq = 0
        self.sent: dict[tuple[int, int], int] = defaultdict(int)

    def reduces(self, dtype: norch.DType, op: str) -> bool:
        if self.fault == "has no int64":
            return dtype is not norch.int64 and super().reduces(dtype, op)
        return op != "avg" and dtype not in (norch.float16, norch.bfloat16, norch.bool)

    def meet(self, value: np.ndarray, take: Any) -> Request:
        self.seq += 1
        place = self.shared[self.name, self.seq]
        place[self.member] = value.copy()
        request = Meeting(place, self.n, take)
        if self.fault == "waits":
            for _ in range(300):
                if request.test():
                    break
                time.sleep(0.001)
        return request

    def fold(self, parts: list[np.ndarray], op: str) -> np.ndarray:
        if self.fault == "own part first":
            parts = [parts[self.member], *parts[: self.member], *parts[self.member + 1 :]]
        result = parts[0].copy()
        for part in parts[1 : 2 if self.fault == "two are enough" else None]:
            result = FOLD["sum" if self.fault == "only sums" else op](result, part)
        return result

    def all_reduce(self, tensor: norch.Tensor, op: str) -> Request:
        out = tensor.numpy().reshape(-1)

        def take(parts: list[np.ndarray]) -> None:
            whole = out if self.fault != "whole buffer" or tensor.base is None else tensor.base.numpy().reshape(-1)
            if whole is not out and whole.size:
                whole[0] = -1
            out[:] = self.fold(parts, op)

        if self.fault == "says done":
            self.meet(out, take).test()
            return Request()
        return self.meet(out, take)

    reduces_together = True

    def all_reduce_together(self, tensors: Any, op: str) -> Request:
        return All([self.all_reduce(t, op) for t in tensors[: -1 if self.fault == "forgets the last" else None]])

    def broadcast(self, tensor: norch.Tensor, root: int) -> Request:
        out = tensor.numpy().reshape(-1)
        root = 0 if self.fault == "always from 0" else root
        return self.meet(out, lambda parts: np.copyto(out, parts[root]))

    def all_gather(self, out: norch.Tensor, tensor: norch.Tensor) -> Request:
        into, step = out.numpy().reshape(-1), -1 if self.fault == "gathers backwards" else 1
        return self.meet(tensor.numpy().reshape(-1), lambda parts: np.copyto(into, np.concatenate(parts[::step])))

    def reduce_scatter(self, out: norch.Tensor, tensor: norch.Tensor, op: str) -> Request:
        into = out.numpy().reshape(-1)
        n, at = into.size, 0 if self.fault == "first part for all" else self.member * into.size
        return self.meet(tensor.numpy().reshape(-1), lambda parts: np.copyto(into, self.fold(parts, op)[at : at + n]))

    def exchange(self, sends: Any, receipts: Any, tag: int = 0) -> Request:
        me = self.member
        for tensor, peer in sends[:: -1 if self.fault == "turns messages around" else 1]:
            self.sent[me, peer] += 1
            self.shared[self.name, me, peer, self.sent[me, peer]][0] = tensor.numpy().reshape(-1).copy()
        requests = []
        for tensor, peer in receipts:
            self.sent[peer, me] += 1
            out = tensor.numpy().reshape(-1)
            place = self.shared[self.name, peer, me, self.sent[peer, me]]
            requests.append(Meeting(place, 1, lambda parts, out=out: np.copyto(out, parts[0][: out.size])))
        return All(requests)

    def abort(self) -> None:
        if self.fault == "waits at the end":
            time.sleep(2.1)


class All(Request):
    def __init__(self, requests: list[Request]) -> None:
        self.requests = requests

    def test(self) -> bool:
        return sum(not request.test() for request in self.requests) == 0


class ThreadsEngine(Engine):
    name = "threads"

    def __init__(self, fault: str) -> None:
        self.fault, self.shared = fault, defaultdict(dict)

    def connect(self, ranks: Any, rank: int, store: Any, timeout: float) -> Communicator:
        members = range(max(ranks) + 1) if self.fault == "ignores groups" else ranks
        name = "all" if self.fault == "ignores groups" else store.prefix
        return Threads(self.shared, name, list(members), rank, self.fault)


def failing(fault: str, n: int = 2, about: str = "") -> list[str]:
    """Which cases about something fail, up to the first that hangs; members are threads."""
    chosen = {name: work for name, work in CASES.items() if about in name or name.startswith("connect")}
    engine, store = ThreadsEngine(fault), HashStore()
    errors: list[dict[str, str]] = [{} for _ in range(n)]
    ready = threading.Barrier(n)

    def member(rank: int) -> None:
        kit = Kit(engine, rank, n, store, 1.0)
        for name, work in chosen.items():
            try:
                work(kit)
            except Exception as error:
                errors[rank][name] = str(error)
            ready.wait()
            if any("hangs" in e for each in errors for e in each.values()):
                return
            ready.wait()

    threads = [threading.Thread(target=member, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [name for name in chosen if any(name in each for each in errors)]


@pytest.fixture(autouse=True)
def shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "AT_ONCE", 0.1)


def test_an_engine_of_threads_passes() -> None:
    assert failing("") == []
    assert failing("", 3) == []


@pytest.mark.parametrize(
    ("fault", "case", "n"),
    [
        ("has no int64", "integers of 8 and 64 bits", 2),
        ("only sums", "all_reduce computes every op", 2),
        ("two are enough", "all_reduce computes every op", 3),
        ("own part first", "the same bits to all members", 3),
        ("whole buffer", "of a part of a buffer", 2),
        ("forgets the last", "reduces each of several tensors", 2),
        ("always from 0", "broadcast copies from any member", 2),
        ("gathers backwards", "all_gather joins", 2),
        ("first part for all", "reduce_scatter gives", 2),
        ("turns messages around", "in the order of their lists", 2),
        ("waits", "never wait for a member", 2),
        ("says done", "never wait for a member", 2),
        ("ignores groups", "Two groups at a time", 2),
        ("waits at the end", "abort() does not wait", 2),
    ],
)
def test_a_broken_engine_fails_the_case_about_its_fault(fault: str, case: str, n: int) -> None:
    (failed,) = failing(fault, n, case)
    assert case in failed


def test_mpi_passes() -> None:
    pytest.importorskip("mpi4py")
    done = subprocess.run(
        [sys.executable, "-m", "norch", "conformance", "--distributed", "mpi", "-n", "2"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"contract 1.1, 2 processes: {len(CASES)} of {len(CASES)} cases passed", done.stdout)


def test_an_engine_that_is_not_there_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "norch", "conformance", "--distributed", "pigeons"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "engine 'pigeons' cannot be used. Installed engines:" in done.stderr
