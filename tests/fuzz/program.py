"""A program: lines of Python that run with `T` norch and with `T` PyTorch, and what became of them in each."""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import operator
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np


class Value(NamedTuple):
    """What a variable holds in the end: a tensor's dtype, values, `requires_grad` and gradient."""

    dtype: str
    values: Any
    requires_grad: bool = False
    grad: Value | None = None


class Outcome(NamedTuple):
    errors: dict[int, BaseException]
    """By line, the exception that it raised."""
    values: dict[str, Value]


def library(name: str) -> ModuleType:
    """norch or torch, with what the lines reach through `T`."""
    found = importlib.import_module(name)
    for part in ("nn", "nn.functional", "optim"):
        importlib.import_module(f"{name}.{part}")
    return found


def namespace(T: Any) -> dict[str, Any]:
    """What the lines may name."""
    return {
        "T": T, "nn": T.nn, "F": T.nn.functional, "optim": T.optim, "inf": math.inf, "nan": math.nan, "np": np,
        "operator": operator,
        "filled": lambda module, seed: filled(T, module, seed), "in_threads": in_threads,
    }  # fmt: skip


HELPERS = """\
import operator
import threading
import numpy as np
from math import inf, nan
import {library} as T
nn, F, optim = T.nn, T.nn.functional, T.optim

def filled(module, seed):
    draw = np.random.default_rng(seed)
    with T.no_grad():
        for _, p in sorted(module.named_parameters()):
            p.copy_(T.tensor(draw.normal(size=tuple(p.shape)) / 2))
    return module

def in_threads(count, work):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
"""


def filled(T: Any, module: Any, seed: int) -> Any:
    """A module, with parameters that are the same in both libraries."""
    draw = np.random.default_rng(seed)
    with T.no_grad():
        for _, p in sorted(module.named_parameters()):
            p.copy_(T.tensor(draw.normal(size=tuple(p.shape)) / 2))
    return module


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Calls `work(i)` in `count` threads at once; raises what the first of them raised."""
    raised: list[Exception] = []
    together = threading.Barrier(count)
    interval = sys.getswitchinterval()

    def run(i: int) -> None:
        together.wait()
        try:
            work(i)
        except Exception as e:
            raised.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    sys.setswitchinterval(1e-6)  # threads change places between any two bytecodes
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    if raised:
        raise raised[0]


def run(lines: tuple[str, ...], T: Any, known: dict[str, Any] | None = None, values: bool = True) -> Outcome:
    """Runs the lines, each whatever the ones before raised. Variables whose names begin with _ are not compared.

    values: False leaves them out: of a tensor of 8 GiB there may be no second copy.
    """
    names = namespace(T) | (known or {})
    given = set(names)
    errors: dict[int, BaseException] = {}
    with quiet():
        for i, line in enumerate(lines):
            try:
                exec(compiled(line), names)
            except Exception as e:
                errors[i] = e.with_traceback(None)
        made = {n: v for n, v in names.items() if n not in given and n[0] != "_"}
        try:
            found = dict(leaves(made, T)) if values else {}
        except RuntimeError as e:  # PyTorch checks at the next use whether some views were changed in place
            errors[len(lines)], found = e, {}
    return Outcome(errors, found)


_CODE: dict[str, Any] = {}


def compiled(line: str) -> Any:
    code = _CODE.get(line)
    if code is None:
        if len(_CODE) > 500:
            _CODE.clear()
        code = _CODE[line] = compile(line, "<program>", "exec")
    return code


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without warnings, NumPy's included, and with what is printed thrown away."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def leaves(value: Any, T: Any, name: str = "") -> Iterator[tuple[str, Value]]:
    """All tensors and numbers in a value, by their place in it."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, T, f"{name}[{key!r}]" if name else key)
    elif isinstance(value, T.Tensor):
        yield name, of_tensor(value, T)
    elif isinstance(value, (bool, int, float)):
        yield name, Value(type(value).__name__, np.asarray(value))
    elif isinstance(value, (tuple, list)):
        yield name, Value("tuple", np.asarray(len(value)))
        for i, part in enumerate(value):
            yield from leaves(part, T, f"{name}[{i}]")


def of_tensor(tensor: Any, T: Any) -> Value:
    with T.no_grad():
        grad = tensor.grad if tensor.requires_grad and tensor.is_leaf else None
        plain = tensor.detach().cpu()
        array = (plain.float() if plain.dtype is T.bfloat16 else plain).numpy(force=True)
        dtype = str(tensor.dtype).split(".")[-1]
        # A copy: the array of a tensor shares its memory with later lines of another run.
        return Value(dtype, array.copy(), tensor.requires_grad, None if grad is None else of_tensor(grad, T))
