"""no_grad, enable_grad, inference_mode: whether ops are recorded, per thread."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from .graph import is_recording, set_recording

_inference = ContextVar("inference_mode", default=False)

P = ParamSpec("P")
R = TypeVar("R")


def is_grad_enabled() -> bool:
    """Whether ops on tensors that require grad are recorded in this thread."""
    return is_recording()


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in `inference_mode`."""
    return _inference.get()


class DecoratorContextManager:
    """A context manager that decorates functions too: each call, and step of a generator, is in one of its own."""

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        code = getattr(function, "__code__", None)
        if code is not None and code.co_flags & 0x20:  # CO_GENERATOR, without importing inspect
            return self._generator(function)  # type: ignore[no-any-return]

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.clone():
                return function(*args, **kwargs)

        return call

    def _generator(self, function: Callable[..., Any]) -> Any:
        """A generator function that runs in the mode, and whose caller does not between its steps."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            running = function(*args, **kwargs)
            try:
                with self.clone():
                    value = next(running)
                while True:
                    try:
                        given = yield value
                    except GeneratorExit:
                        with self.clone():
                            running.close()
                        raise
                    except BaseException as error:
                        with self.clone():
                            value = running.throw(error)
                    else:
                        with self.clone():
                            value = running.send(given)
            except StopIteration as end:
                return end.value

        return call

    def clone(self) -> Any:
        """One more such context: calls in several threads must not share what they put back. Classes whose constructor
        takes arguments have their own."""
        return type(self)()


class _Mode(DecoratorContextManager):
    """A context manager, and a decorator, that sets the grad mode and puts it back."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        mode = object.__new__(cls)
        if args and callable(args[0]):  # @no_grad without parentheses
            mode.__init__()  # type: ignore[misc]
            return mode(args[0])
        return mode

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.before: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        self.before.append((is_recording(), _inference.get()))
        set_recording(self.enabled)

    def __exit__(self, *exception: object) -> None:
        recording, inference = self.before.pop()
        set_recording(recording)
        _inference.set(inference)

    def clone(self) -> _Mode:
        return type(self)(self.enabled)


class no_grad(_Mode):
    """Ops in this context, or in a function decorated with `@no_grad()` or `@no_grad`, are not recorded.

    `enabled` is the function, where it decorates one.
    """

    def __init__(self, enabled: Any = False) -> None:
        super().__init__(False)


class enable_grad(_Mode):
    """Ops in this context are recorded, also inside `no_grad`. As a decorator too; `enabled` is its function."""

    def __init__(self, enabled: Any = True) -> None:
        super().__init__(True)


class set_grad_enabled(_Mode):
    """Sets whether ops are recorded: at once, as a context manager until its end, as a decorator in the function."""

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode))
        self._at_call = (is_recording(), _inference.get())
        set_recording(bool(mode))

    def __enter__(self) -> None:
        self.before.append(self._at_call)
        set_recording(self.enabled)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        set_recording(self._at_call[0])  # it holds within the function, and not from now on
        return super().__call__(function)


class inference_mode(_Mode):
    """`no_grad` for code that never needs a gradient. Within `inference_mode(False)` ops are recorded."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)
        self.inference = bool(mode)

    def __enter__(self) -> None:
        super().__enter__()
        _inference.set(self.inference)

    def clone(self) -> _Mode:
        return inference_mode(self.inference)


class set_multithreading_enabled(DecoratorContextManager):
    """PyTorch's setting of whether a backward pass has several threads, taken as `mode`:
    norch's runs in the thread that calls it. Also a context manager and a decorator."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def clone(self) -> set_multithreading_enabled:
        return set_multithreading_enabled(self.mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass
