"""Calls with arguments that nobody should pass: norch must say so, and in time, and go on."""

from __future__ import annotations

import inspect
from functools import cache
from random import Random

import ops
from program import library, run

HOSTILE = (
    "None", "'x'", "''", "b'x'", "object()", "[]", "()", "{}", "[[]]", "[None]", "['a']", "[[1], [2, 3]]", "nan", "inf",
    "-inf", "1e400", "2**31", "2**63", "2**64", "2**100", "-1", "-2**63", "-2**64", "0", "0.5", "1j", "True", "False",
    "...",
    "slice(None)", "int", "T.Tensor", "T.float32", "T.bool", "lambda *a: 1", "range(3)", "range(0)",
    "iter([1, 2])",
    "np.float32(1)", "np.int64(2)", "np.bool_(True)", "np.array(1)", "np.array([1, 2])", "np.array(['a'])",
    "np.zeros((0, 2))",
    "np.array([1, None])", "(1,) * 70", "[1] * 9", "(-1, -1)", "(0, 0)", "(2**62, 4)", "('a', 1)", "{1, 2}", "'sum'",
    "'cpu'",
    "T.tensor(1.0)", "T.tensor(True)", "T.tensor([1, 2])", "T.zeros(0)", "T.zeros(2, 0, 3)", "T.ones(1, 1, 1, 1, 1, 1)",
    "T.tensor([nan, inf])", "T.tensor([9, -9])", "T.ones(3, dtype=T.float16)", "T.ones(2, requires_grad=True)",
    "T.device('cpu')", "'cuda'", "'nowhere'", "nn.Linear(1, 1)", "nn.Parameter(T.ones(2))", "Exception", "Exception()",
    "type('A', (), {'__index__': lambda s: 2})()", "type('A', (), {'__float__': lambda s: 2.0})()",
    "type('A', (), {'__len__': lambda s: -1})()", "type('A', (), {'__getitem__': lambda s, i: [s, 1][i]})()",
)  # fmt: skip

ALLOWED = (
    TypeError,
    ValueError,
    IndexError,
    NotImplementedError,
    MemoryError,
    RuntimeError,
    OverflowError,
    ImportError,
    ZeroDivisionError,
)

NEVER = ("BackendError", "RecursionError")
"""Kinds of RuntimeError that a wrong argument must not raise."""


@cache
def modules() -> tuple[tuple[str, int], ...]:
    """Modules, by name, with how many arguments their constructors need."""
    found = []
    nn = library("norch").nn
    for name in sorted(dir(nn)):
        kind = getattr(nn, name)
        if isinstance(kind, type) and issubclass(kind, nn.Module):
            needed = [p for p in inspect.signature(kind).parameters.values() if p.default is p.empty]
            found.append((name, len([p for p in needed if p.kind is p.POSITIONAL_OR_KEYWORD])))
    return tuple(found)


@cache
def keywords(form: str) -> tuple[str, ...]:
    """The names of a function's parameters."""
    T = library("norch")
    place, _, name = form.rpartition(".")
    home = T.Tensor if not place else ops.reached(T, place)
    try:
        return tuple(
            p.name for p in inspect.signature(getattr(home, name)).parameters.values() if p.kind < 2 or p.kind == 3
        )
    except ValueError:
        return ()


def generate(r: Random) -> list[str]:
    """A call of which one or two arguments are hostile."""
    if r.random() < 0.15:
        name, count = r.choice(modules())
        given = [r.choice((*HOSTILE, "2", "3", "4")) for _ in range(count + r.randrange(2))]
        return [
            f"m = nn.{name}({', '.join(given)})",
            f"z = m({r.choice((*HOSTILE, 'T.ones(2, 2)', 'T.ones(1, 2, 4, 4)'))})",
        ]
    while True:
        lines = ops.generate(r)
        at = next((i for i, line in enumerate(lines) if line.startswith("z = ")), None)
        if at is not None and not lines[at].startswith("z = operator."):  # what Python says of its own is not norch's
            break
    head, bracket, rest = lines[at].removeprefix("z = ").partition("(")
    given = list(ops.split_outside(rest[:-1], ","))
    for _ in range(r.choice((1, 1, 2))):
        kind = r.randrange(10)
        if kind == 0 and given:
            given.pop(r.randrange(len(given)))
        elif kind == 1:
            names = keywords(
                head.partition(".")[2] and head if head.startswith(("T.", "F.")) else f".{head.split('.')[-1]}"
            )
            given.append(f"{r.choice(names or ('nonsense',))}={r.choice(HOSTILE)}")
        elif given:
            i = r.randrange(len(given))
            keyword, equals, _ = given[i].partition("=")
            given[i] = (
                f"{keyword}={r.choice(HOSTILE)}" if equals and keyword.strip().isidentifier() else r.choice(HOSTILE)
            )
    return [*lines[:at], f"z = {head}({', '.join(p.strip() for p in given)})", *lines[at + 1 :][:2]]


def check(lines: tuple[str, ...]) -> str | None:
    """What norch raised that it must not."""
    for i, error in run(lines, library("norch"), values=False).errors.items():
        name = type(error).__name__
        if "has no attribute" in str(error) and i and not lines[i].startswith("z = "):
            continue  # an earlier line failed, or gave no tensor
        if isinstance(error, NameError | SyntaxError):
            continue
        if isinstance(error, MemoryError) and not str(error):
            continue  # Python's own
        if not isinstance(error, ALLOWED) or name in NEVER or not str(error):
            return f"line {i + 1} raises {name}: {str(error)[:300]}    {lines[i]}"
    return None
