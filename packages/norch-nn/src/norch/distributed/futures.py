"""Futures, as communication hooks return them: what a collective will have made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_NOT_YET: Any = object()
_LOOK_SECONDS = 0.5  # how often to look whether there still is another thread


class Future(Generic[T]):
    """A value that is there after `wait()`.

    What `then` was given is called as soon as it is known, in the thread that sets it; that of a collective is made
    when it is first waited for. devices: PyTorch's, ignored.
    """

    def __init__(self, *, devices: Any = None) -> None:
        self._value: Any = _NOT_YET
        self._error: BaseException | None = None
        self._make: Callable[[], Any] | None = None
        self._ready: Callable[[], bool] = lambda: False
        self._callbacks: list[Callable[[Future[T]], Any]] = []
        self._changed = threading.Condition()

    @classmethod
    def later(cls, make: Callable[[], Any], ready: Callable[[], bool]) -> Future[Any]:
        """What `make()` returns, which waits unless `ready()`."""
        found: Future[Any] = cls()
        found._make, found._ready = make, ready
        return found

    def done(self) -> bool:
        """Whether `wait()` would return at once. Lets engines make progress."""
        return self._is_known() or self._ready()

    def wait(self) -> T:
        """The value. Raises what making it raised; RuntimeError where there is no thread that could set it."""
        self._join()
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def value(self) -> T:
        """The value, as `wait()` gives it."""
        return self.wait()

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """A future of `callback(self)`, called once this one is done; where that failed, its `wait()` raises."""

        def make() -> Any:
            self._join()
            return callback(self)

        found = Future.later(make, self.done)
        self.add_done_callback(lambda _: found._begin())
        return found

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Calls `callback(self)` when the value, or that it failed, is known."""
        with self._changed:
            if not self._is_known():
                self._callbacks.append(callback)
                return
        callback(self)

    def set_result(self, result: T) -> None:
        """Makes `result` its value. RuntimeError where it has a value or an error."""
        self._set(result, None)

    def set_exception(self, error: BaseException) -> None:
        """Makes `wait()` raise `error`. RuntimeError where it has a value or an error."""
        self._set(_NOT_YET, error)

    def _set(self, value: Any, error: BaseException | None) -> None:
        with self._changed:
            if self._is_known():
                raise RuntimeError("Future.set_result(): it has a value or an error already")
            self._value, self._error = value, error
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback(self)

    def _is_known(self) -> bool:
        return self._value is not _NOT_YET or self._error is not None

    def _begin(self) -> None:
        """Makes the value where nobody is at it."""
        with self._changed:
            make, self._make = self._make, None
        if make is None:
            return
        try:
            result = make()
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(result)

    def _join(self) -> None:
        self._begin()
        with self._changed:
            while not self._is_known():
                if threading.active_count() == 1:
                    raise RuntimeError("Future.wait(): nobody has called set_result()")
                self._changed.wait(_LOOK_SECONDS)


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of all of them, done. It fails where one of them does."""

    def make() -> list[Future[Any]]:
        for one in futures:
            one.wait()
        return list(futures)

    found = Future.later(make, lambda: all(one.done() for one in futures))

    def told(_: Any) -> None:
        if all(one._is_known() for one in futures):
            found._begin()

    for one in futures:
        one.add_done_callback(told)
    told(None)
    return found


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """The values of all of them."""
    return [one.wait() for one in futures]
