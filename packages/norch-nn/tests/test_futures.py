"""torch.futures: what is done when a result is set, in whatever thread."""

from __future__ import annotations

import threading

import pytest

from norch.distributed.futures import Future, collect_all, wait_all


def test_what_follows_is_called_when_the_result_is_set() -> None:
    first: Future[int] = Future()
    seen: list[int] = []
    second = first.then(lambda f: seen.append(f.value()) or f.value() + 1)
    first.add_done_callback(lambda f: seen.append(-f.value()))
    assert not seen
    assert not second.done()
    first.set_result(3)
    assert seen == [3, -3]
    assert second.done()
    assert second.wait() == 4
    assert first.then(lambda f: seen.append(0)).done()
    assert seen == [3, -3, 0]


def test_long_chains_of_results_that_are_there() -> None:
    last: Future[int] = Future()
    last.set_result(0)
    for _ in range(5000):
        last = collect_all([last.then(lambda f: f.value() + 1)]).then(lambda f: f.value()[0].value())
    assert last.wait() == 5000
    assert collect_all([]).done()


def test_results_of_other_threads() -> None:
    futures: list[Future[int]] = [Future() for _ in range(3)]
    go = threading.Event()

    def work() -> None:
        go.wait()
        for i, future in enumerate(futures):
            future.set_result(i)

    both = collect_all(futures).then(lambda all_: sum(f.value() for f in all_.value()))
    thread = threading.Thread(target=work)
    thread.start()
    go.set()
    assert both.wait() == 3
    assert wait_all(futures) == [0, 1, 2]
    thread.join()


def test_errors_reach_what_follows() -> None:
    first: Future[int] = Future()
    second, third = first.then(lambda f: f.value()), first.then(lambda f: "caught" if f.done() else "")
    everything = collect_all([second, third])
    first.set_exception(KeyError("x"))
    for future in (first, second, everything):
        with pytest.raises(KeyError):
            future.wait()
    assert third.wait() == "caught"
    with pytest.raises(RuntimeError, match="already"):
        first.set_result(1)


def test_a_result_that_is_made_late_is_made_once() -> None:
    made: list[str] = []
    late = Future.later(lambda: made.append("value") or 5, lambda: True)
    after = late.then(lambda f: f.value() + 1)
    assert late.done()
    assert after.done()
    assert not made
    assert after.wait() == 6
    assert late.wait() == 5
    assert made == ["value"]
