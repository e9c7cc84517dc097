"""Programs of one call: any public op, with any arguments that it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, NamedTuple

import arguments
import literals
import moods
import operands
from arguments import Call
from program import library
from signatures import SIGNATURES

PLACES = ("T", "F", "T.special", "T.linalg")

INTERNAL = set(
    """batch_norm binary_cross_entropy_with_logits cosine_embedding_loss ctc_loss embedding hinge_embedding_loss
    instance_norm kl_div margin_ranking_loss poisson_nll_loss triplet_margin_loss""".split()
)
"""What torch has twice: in nn.functional, and for its own use, with other arguments, among its functions."""

OPERATORS = {
    "add": "add iadd", "sub": "sub isub", "mul": "mul imul", "true_divide": "truediv itruediv",
    "floor_divide": "floordiv ifloordiv", "remainder": "mod imod", "pow": "pow ipow", "matmul": "matmul",
    "bitwise_and": "and_ iand", "bitwise_or": "or_ ior", "bitwise_xor": "xor ixor",
    "bitwise_left_shift": "lshift ilshift", "bitwise_right_shift": "rshift irshift",
    "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    "neg": "neg", "positive": "pos", "bitwise_not": "invert", "abs": "abs",
}  # fmt: skip
"""What Python's operators call, by their names in its module `operator`."""

IN_PLACE = re.compile(r".*_$|operator\.i(?!nvert)")
"""Forms that change their first argument."""

LARGE = ((70_001,), (257, 300), (3, 129, 100), (1025, 65), (2, 40_003), (33_000, 2))
"""Shapes that kernels divide among threads, with rests."""

SIZE_KEPT = frozenset(
    """x fx ix bx o fo io same fsame dim dims bool last choice num bound coefficient reduction weight true wider_dtype
    int mask dtype fraction""".split()
)
"""Words of ops that may have a large operand."""

SIZE_GROWN = frozenset("diagflat unfold unbind split tolist item unique_consecutive".split())
"""Ops with these words whose results are much larger than the operand, or many."""

FLOATING = ("matrix", "positive_definite", "variance", "probability")
"""Words that make floats."""


class Word(NamedTuple):
    keyword: str
    name: str
    rest: str | None


class Signature(NamedTuple):
    names: tuple[str, ...]
    required: tuple[Word, ...]
    optional: tuple[Word, ...]


def words(text: str) -> tuple[Word, ...]:
    """The words of a line, with what each has in parentheses, which may nest."""
    found = []
    for part in split_outside(text):
        keyword, _, name = part.rpartition("=") if re.match(r"\w+=", part) else ("", "", part)
        if keyword:
            keyword, name = part.split("=", 1)
        head, bracket, rest = name.partition("(") if not name.startswith(("(", "'")) else (name, "", "")
        found.append(Word(keyword, head, rest[:-1] if bracket else None))
    return tuple(found)


def split_outside(text: str, at: str = " ") -> Iterator[str]:
    """`text` split at a character outside all brackets and quotes."""
    depth, part, quoted = 0, "", False
    for letter in text + at:
        quoted ^= letter == "'"
        depth += (letter in "([") - (letter in ")]") if not quoted else 0
        if letter == at and not depth and not quoted:
            if part:
                yield part
            part = ""
        else:
            part += letter


@cache
def signatures() -> tuple[Signature, ...]:
    found = []
    for line in SIGNATURES.replace("\n  ", " ").strip().splitlines():
        names, _, rest = line.partition(": ")
        required, _, optional = rest.partition(" | ")
        if names:
            found.append(Signature(tuple(names.split()), words(required), words(optional)))
    return tuple(found)


@cache
def forms(name: str) -> tuple[str, ...]:
    """How an op can be called in both libraries: "T.add", ".add", ".add_"."""
    ours, theirs = library("norch"), library("torch")
    found = []
    for place in PLACES:
        mine, its = reached(ours, place), reached(theirs, place)
        if place == "T" and name in INTERNAL:
            continue
        if callable(getattr(mine, name, None)) and callable(getattr(its, name, None)):
            found.append(f"{place}.{name}")
        if place == "T" and hasattr(mine, f"{name}_") and hasattr(its, f"{name}_"):
            found.append(f"T.{name}_")
    found += [f"operator.{operator}" for operator in OPERATORS.get(name, "").split()]
    methods = [m for m in (name, f"{name}_") if callable(getattr(ours.Tensor, m, None))]
    found += [f".{m}" for m in methods if callable(getattr(theirs.Tensor, m, None))]
    return tuple(found)


def reached(T: Any, place: str) -> Any:
    return {"T": T, "F": T.nn.functional, "T.special": T.special, "T.linalg": T.linalg}[place]


@cache
def calls() -> tuple[tuple[str, str, Signature], ...]:
    """Every way to call every op."""
    return tuple(
        (name.split(".")[-1], form, s)
        for s in signatures()
        for name in s.names
        for form in ((name,) if "." in name else forms(name))
    )


def argument(c: Call, word: Word, position: int) -> str:
    """The text of one argument; tensors get lines of their own."""
    name, rest = word.name, word.rest
    if name in ("None", "dims=1") or name.startswith("'") or name.lstrip("-").isdigit():
        return name
    if name == "choice":
        return c.r.choice(list(split_outside(rest or "", ",")))
    head = name.removeprefix("f") if name in ("fx", "fo", "fsame") else name
    head = head.removeprefix("i") if name in ("ix", "io") else head
    head = head.removeprefix("b") if name == "bx" else head
    kind: str | None = None
    if name in ("ix", "io"):
        kind = arguments.integers(c)
        c.dtype = kind
    if head == "x":
        if rest is not None:
            of = arguments.sized(c, rest)
        else:
            of = c.r.choice(LARGE) if c.large and position == 0 else literals.shape(c.r)
        if not c.shape or position == 0:
            c.shape = of
        return c.tensor(of, kind)
    if head == "o":
        if rest is not None:
            c.shape = arguments.sized(c, rest)
            return c.tensor(c.shape)
        return operands.operand(c, kind)
    if head == "same":
        return operands.same(c)
    function = next(
        f for m in (arguments, operands) for f in (getattr(m, head, None), getattr(m, f"{head}_", None)) if f
    )
    made: str = function(c, *(split_outside(rest, ",") if head == "int" else [rest]) if rest is not None else [])
    return made


def generate(r: Random) -> list[str]:
    """The lines of a call, at times with a gradient, and with a change of what went in or came out."""
    name, form, signature = r.choice(calls())
    floats = any(w.name.startswith("f") or w.name in FLOATING for w in signature.required)
    only = ("bool", *literals.INTS) if any(w.name in ("ix", "io") for w in signature.required) else literals.DTYPES
    dtype = literals.dtype(r, literals.FLOATS if floats else only)
    c = Call(r, dtype, moods.mood(r, name, dtype))
    c.large = r.random() < 0.03 and name not in SIZE_GROWN and SIZE_KEPT.issuperset(w.name for w in signature.required)
    given = [f"{w.keyword}=" * bool(w.keyword) + argument(c, w, i) for i, w in enumerate(signature.required)]
    if not form.startswith("operator."):
        given += [f"{w.keyword}={argument(c, w, -1)}" for w in signature.optional if r.random() < 0.4]
    elif r.random() < 0.5 and not IN_PLACE.match(form):
        given.reverse()
    lines = list(c.tensors)
    if name == "group_norm":  # whose gradient in PyTorch ends the process for 16 bits in that layout
        lines = [line.replace(".contiguous(memory_format=T.channels_last)", "") for line in lines]
    graded: list[str] = []
    distinct = name not in moods.UNSTABLE or (c.mood == "plain" and c.dtype in ("float32", "float64"))
    single = moods.NORMALISE.match(name) and 1 in c.shape
    if r.random() < 0.5 and distinct and not single:
        for i, line in enumerate(lines):
            variable = line[0]
            if any(f"dtype=T.{d}" in line or f".to(T.{d})" in line for d in literals.FLOATS) and r.random() < 0.7:
                lines[i] = f"{line}; {variable}.requires_grad_()"
                graded.append(variable)
    call = f"{given[0]}{form}({', '.join(given[1:])})" if form.startswith(".") else f"{form}({', '.join(given)})"
    if IN_PLACE.match(form) and graded:
        lines.append(f"y = {given[0]}.clone()")
        call = call.replace(given[0], "y", 1) if form.startswith(".") else call.replace(f"({given[0]}", "(y", 1)
    lines.append(f"z = {call}")
    if not distinct:
        lines.append("z = z[0] if isinstance(z, tuple) else z")
    if graded:
        lines += gradients(r, graded, twice=c.mood == "plain")
    elif r.random() < 0.3 and lines and c.tensors:
        variable = r.choice(("z", *(line[0] for line in c.tensors)))
        lines.append(f"{variable}.{r.choice(('add_(1)', 'mul_(2)', 'zero_()', 'fill_(3)'))}")
    return lines


def gradients(r: Random, of: list[str], twice: bool) -> list[str]:
    """Lines that differentiate `z`, at times twice."""
    square = r.choice(("t", "t", "t", "t * t"))
    # Weights, since the sum of what is normalised is constant.
    weights = f"(T.arange(t.numel()) * {r.choice((1, 3, 7))} % 5 + 1).reshape(t.shape)"
    parts = "(z if isinstance(z, (tuple, list)) else [z])"
    lines = [f"_s = sum(({square} * {weights}).sum() for t in {parts} if isinstance(t, T.Tensor) and t.requires_grad)"]
    if not twice or r.random() < 0.6:
        return [*lines, "if isinstance(_s, T.Tensor): _s.backward()"]
    options = f"[{', '.join(of)}], create_graph=True, allow_unused=True"
    return [
        *lines,
        f"_d = T.autograd.grad(_s, {options}) if isinstance(_s, T.Tensor) else ()",
        "d = [None if t is None else t.detach() for t in _d]",
        "_e = sum((t * t).sum() for t in _d if t is not None and t.requires_grad)",
        "if isinstance(_e, T.Tensor): _e.backward()",
    ]
