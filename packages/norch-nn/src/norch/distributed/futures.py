"""Futures, as communication hooks return them: what a collective will have made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_NOT_YET: Any = object()


class Future(Generic[T]):
    """A value that is there after `wait()`.

    No thread works on it: what `then` was given is called when its result is first waited for.
    devices: PyTorch's, ignored.
    """

    def __init__(self, *, devices: Any = None) -> None:
        self._value: Any = _NOT_YET
        self._error: BaseException | None = None
        self._make: Callable[[], Any] | None = None
        self._ready: Callable[[], bool] = lambda: False
        self._callbacks: list[Callable[[Future[T]], Any]] = []

    @classmethod
    def later(cls, make: Callable[[], Any], ready: Callable[[], bool]) -> Future[Any]:
        """What `make()` returns, which waits unless `ready()`."""
        found: Future[Any] = cls()
        found._make, found._ready = make, ready
        return found

    def done(self) -> bool:
        """Whether `wait()` would return at once. Lets engines make progress."""
        return self._value is not _NOT_YET or self._error is not None or self._ready()

    def wait(self) -> T:
        """The value. Raises what making it raised; RuntimeError where nothing will set it."""
        if self._value is _NOT_YET and self._error is None:
            if self._make is None:
                raise RuntimeError("Future.wait(): nobody has called set_result()")
            make, self._make = self._make, None
            try:
                self.set_result(make())
            except BaseException as error:
                self._error = error
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def value(self) -> T:
        """The value, as `wait()` gives it."""
        return self.wait()

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """A future of `callback(self)`, called once this one is done."""

        def make() -> Any:
            if self._error is None:
                self.wait()
            return callback(self)

        return Future.later(make, self.done)

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Calls `callback(self)` when the value is known."""
        if self._value is _NOT_YET:
            self._callbacks.append(callback)
        else:
            callback(self)

    def set_result(self, result: T) -> None:
        """Gives it its value. RuntimeError where it has one."""
        if self._value is not _NOT_YET:
            raise RuntimeError("Future.set_result(): it has a value already")
        self._value = result
        for callback in self._callbacks:
            callback(self)
        self._callbacks.clear()

    def set_exception(self, error: BaseException) -> None:
        """Makes `wait()` raise `error`."""
        self._error = error


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of all of them, done."""

    def make() -> list[Future[Any]]:
        for one in futures:
            one.wait()
        return list(futures)

    return Future.later(make, lambda: all(one.done() for one in futures))


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """The values of all of them."""
    return [one.wait() for one in futures]
