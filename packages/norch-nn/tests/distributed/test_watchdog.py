"""The watchdog gives up what a device waits for in vain, and nothing else. The groups here are made up."""

from __future__ import annotations

import threading
import time

import pytest

from norch.distributed.engine import Communicator, Request
from norch.distributed.errors import DistributedError
from norch.distributed.watchdog import LOOK, Watchdog


class Never(Request):
    def test(self) -> bool:
        return False


class Broken(Request):
    def test(self) -> bool:
        raise DistributedError("the link is down")


class Members:
    def __init__(self, trouble: str | None = None) -> None:
        self.said = trouble
        self.ledger = self
        self.mine = 0

    def trouble(self, seq: int) -> str | None:
        return self.said

    def call(self, member: int, seq: int) -> str:
        return f"collective {seq}"


class Group:
    """As much of a ProcessGroup as a watchdog sees."""

    def __init__(self, timeout: float, trouble: str | None = None, blocked: float = 0.0) -> None:
        self.timeout, self.members, self.global_rank, self.seq = timeout, Members(trouble), 3, 7
        self.failed: str | None = None
        self.closed = False

        class Blocked(Communicator):
            all_reduce = broadcast = all_gather = reduce_scatter = exchange = lambda *_: Request()

            def blocked(self) -> float:
                return blocked

        self.comms = {"cuda": Blocked()}

    def late(self, seq: int, call: str) -> str:
        return f"{call} ({seq}) did not end within {self.timeout:g} s"

    def give_up(self, why: str) -> None:
        self.failed = why


@pytest.fixture
def watch():
    groups = []

    def start(group, *requests):
        groups.append(group)
        dog = Watchdog(group)
        for request in requests:
            dog.latest = (request, 7, "all_reduce", time.monotonic())
            time.sleep(3 * LOOK)
        return group

    yield start
    for group in groups:
        group.closed = True
    time.sleep(2 * LOOK)
    assert not any(thread.name == "norch.distributed.watchdog" for thread in threading.enumerate())


def until_failed(group, seconds=3.0):
    end = time.monotonic() + seconds
    while group.failed is None and time.monotonic() < end:
        time.sleep(0.01)
    return group.failed


def test_what_does_not_end_in_time_is_given_up(watch, capsys):
    group = watch(Group(timeout=0.5), Request(), Never())
    assert until_failed(group) == "all_reduce (7) did not end within 0.5 s"
    assert capsys.readouterr().err == "norch.distributed: rank 3: all_reduce (7) did not end within 0.5 s\n"


def test_who_is_in_trouble_is_said_at_once(watch):
    assert until_failed(watch(Group(timeout=60, trouble="rank 1 is dead"), Never())) == "rank 1 is dead"


def test_what_an_engine_reports_is_said(watch):
    assert until_failed(watch(Group(timeout=60), Broken())) == "the link is down"


def test_a_call_that_does_not_come_back_is_given_up(watch):
    assert until_failed(watch(Group(timeout=1, blocked=1.5))) == "collective 7 (7) did not end within 1 s"


def test_what_is_done_or_has_time_is_left_alone(watch):
    done = watch(Group(timeout=0.2, trouble="rank 1 is dead"), Request(), Request())
    waiting = watch(Group(timeout=60), Never())
    time.sleep(0.5)
    assert done.failed is None
    assert waiting.failed is None
