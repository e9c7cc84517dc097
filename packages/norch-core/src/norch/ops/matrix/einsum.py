"""Einstein summation, as matrix products. Loaded when it is first used."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any, NamedTuple

from ...dispatch.arguments import describe, foreign
from ...errors import DTypeError, ShapeError
from ...spec import Shape

if TYPE_CHECKING:
    from ...tensor import Tensor

Labels = tuple[str, ...]

_LETTERS = ascii_uppercase + ascii_lowercase
"""What stands for a number: letters in the order that an output which is not given has them in."""


def _from_lists(first: Any, rest: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The equation and the tensors of operands that each have a list of numbers behind them, and the output's, if any,
    at the end."""
    given = (first, *rest)
    operands, lists = given[:-1:2] if len(given) % 2 else given[::2], given[1::2]
    output = given[-1] if len(given) % 2 else None
    if not all(isinstance(x, list | tuple) for x in (*lists, *([] if output is None else [output]))):
        return first, rest  # which are refused

    def text(labels: Any) -> str:
        return "".join(["..." if label is Ellipsis else _LETTERS[label] for label in labels])

    equation = ",".join(map(text, lists))
    return equation if output is None else f"{equation}->{text(output)}", operands


def einsum(equation: str, *operands: Any) -> Tensor:
    """Sums of products by Einstein's convention, such as "bij,bjk->bik"; "..." stands for batch dims.

    An operand with the labels of one before it is first multiplied into that; then they are contracted from the left,
    two at a time, each by one matrix product. Raises ShapeError for an equation
    that does not fit its operands, DTypeError for what is neither an equation nor a tensor.
    """
    if not isinstance(equation, str) and len(operands) > 0:
        equation, operands = _from_lists(equation, operands)
    if len(operands) == 1 and isinstance(operands[0], tuple | list):
        operands = tuple(operands[0])
    try:
        terms, output = _parse(equation, tuple([tuple(x.spec.shape) for x in operands]))
    except (AttributeError, TypeError):
        found = foreign(operands)
        if found is not None:
            return found("einsum", (equation, *operands), {})  # type: ignore[no-any-return]
        came = ", ".join(map(describe, (equation, *operands)))
        raise DTypeError(f"einsum(): expected an equation and tensors, got {came}") from None
    if len(terms) > 2:
        operands, terms = _within(operands, terms)
    result, labels = _diagonals(operands[0], terms[0])
    for i in range(1, len(terms)):
        x, term = _diagonals(operands[i], terms[i])
        needed = output if i == len(terms) - 1 else output + sum(terms[i + 1 :], ())
        pairing = _pairing(labels, tuple(result.spec.shape), term, tuple(x.spec.shape), needed, len(terms) == 2)
        if pairing.swapped:
            result, x = x, result
        left, right = _arrange(result, pairing.left), _arrange(x, pairing.right)
        out = left @ right if pairing.sums else left * right
        result, labels = out if out.spec.shape == pairing.shape else out.reshape(pairing.shape), pairing.labels
    if labels == output:
        return result
    summed = [i for i, label in enumerate(labels) if label not in output]
    if summed:
        result = result.sum(summed)
        labels = tuple([label for label in labels if label in output])
    return result.permute([labels.index(label) for label in output])


@lru_cache(maxsize=1024)
def _parse(equation: str, shapes: tuple[Shape, ...]) -> tuple[tuple[Labels, ...], Labels]:
    """The labels of each operand's dims, and those of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ShapeError(f"einsum(): {equation!r} has {len(terms)} terms for {len(shapes)} operands")
    parsed, widest = [], 0
    for term, shape in zip(terms, shapes, strict=True):
        head, dots, tail = term.partition("...")
        extra = len(shape) - len(head) - len(tail)
        if (extra < 0 or (extra and not dots)) or (not (head + tail).isalpha() and head + tail):
            raise ShapeError(f"einsum(): {equation!r}: term {term!r} does not fit shape {shape}")
        widest = max(widest, extra)
        parsed.append((head, extra, tail))
    # Batch dims of "..." get labels that no letter has, aligned from the right.
    full = tuple([(*head, *[f"...{i}" for i in range(widest - extra, widest)], *tail) for head, extra, tail in parsed])
    sizes: dict[str, int] = {}
    for labels, shape in zip(full, shapes, strict=True):
        for label, n in zip(labels, shape, strict=True):
            if sizes.setdefault(label, n) not in (n, 1) and n != 1:
                raise ShapeError(
                    f"einsum(): {equation!r}: {label!r} has sizes {sizes[label]} and {n} in shapes "
                    f"{', '.join(map(str, shapes))}"
                )
            sizes[label] = max(sizes[label], n)
    dots_labels = tuple([f"...{i}" for i in range(widest)])
    if not arrow:
        letters = [c for labels in full for c in labels if not c.startswith("...")]
        return full, (*dots_labels, *sorted(c for c in set(letters) if letters.count(c) == 1))
    head, dots, tail = right.partition("...")
    output = (*head, *(dots_labels if dots else ()), *tail)
    if len(set(output)) != len(output) or not set(output) <= set(sizes):
        raise ShapeError(f"einsum(): {equation!r}: the output {right!r} repeats a label or names an unknown one")
    return full, output


def _within(operands: tuple[Any, ...], terms: tuple[Labels, ...]) -> tuple[tuple[Any, ...], tuple[Labels, ...]]:
    """The operands, of which one that has just the dims of another, in any order, has become a factor of that."""
    kept: list[tuple[Any, Labels]] = []
    for x, term in zip(operands, terms, strict=True):
        for i, (other, labels) in enumerate(kept):
            if len(set(labels)) == len(labels) == len(term) and set(term) == set(labels):
                factor = x if term == labels else x.permute([term.index(c) for c in labels])
                if factor.spec.shape == other.spec.shape:
                    kept[i] = other * factor, labels
                    break
        else:
            kept.append((x, term))
            continue
        if factor.spec.shape != other.spec.shape:
            kept.append((x, term))
    return tuple([x for x, _ in kept]), tuple([term for _, term in kept])


def _diagonals(x: Tensor, term: Labels) -> tuple[Tensor, Labels]:
    """Takes the diagonal of dims that share a label."""
    while len(set(term)) < len(term):
        label = next(c for c in term if term.count(c) > 1)
        first = term.index(label)
        second = term.index(label, first + 1)
        x = x.diagonal(0, first, second)
        term = (*[c for i, c in enumerate(term) if i not in (first, second)], label)
    return x, term


class _Arrangement(NamedTuple):
    """How an operand becomes a (batch of) matrices: dims to sum, their order, their sizes and the shape."""

    summed: list[int]
    order: list[int] | None
    sizes: Shape
    shape: Shape


class _Pairing(NamedTuple):
    """The product of two operands, in the other order where `swapped`: both arrangements, whether it sums, and the
    labels and sizes of its dims."""

    swapped: bool
    left: _Arrangement
    right: _Arrangement
    sums: bool
    labels: Labels
    shape: Shape


@lru_cache(maxsize=1024)
def _pairing(a: Labels, a_shape: Shape, b: Labels, b_shape: Shape, needed: Labels, swaps: bool) -> _Pairing:
    """Sums over the labels that neither another operand nor the output needs.

    Labels of each kind are in the order of what is needed, which begins with the output. Where it `swaps` operands, it
    does so where that has all of the second's before the first's. PyTorch's results lie so, which views rely on.
    """
    sizes = dict(zip(a, a_shape, strict=True))
    for c, n in zip(b, b_shape, strict=True):
        sizes[c] = max(n, sizes.get(c, 1)) if 0 not in (n, sizes.get(c, 1)) else 0
    inner = [c for c in a if c in b and c not in needed]
    ordered = dict.fromkeys(needed)
    batch = [c for c in ordered if c in a and c in b]
    rows = [c for c in ordered if c in a and c not in b]
    columns = [c for c in ordered if c in b and c not in a]

    if not inner:
        labels = tuple([c for c in ordered if c in sizes])
        left, right = _factor(a, a_shape, labels), _factor(b, b_shape, labels)
        return _Pairing(False, left, right, False, labels, tuple([sizes[c] for c in labels]))

    def arrange(term: Labels, *groups: list[str]) -> _Arrangement:
        shape = (*[sizes[c] for c in batch], *[prod([sizes[c] for c in group]) for group in groups])
        return _arrangement(term, [*batch, *groups[0], *groups[1]], sizes, shape)

    swapped = swaps and bool(rows and columns) and needed.index(columns[-1]) < needed.index(rows[0])
    if swapped:
        a, b, rows, columns = b, a, columns, rows
    labels = (*batch, *rows, *columns)
    left, right = arrange(a, rows, inner), arrange(b, inner, columns)
    return _Pairing(swapped, left, right, True, labels, tuple([sizes[c] for c in labels]))


def _factor(term: Labels, shape: Shape, labels: Labels) -> _Arrangement:
    """An operand with a dim for each of the labels, of size 1 where it has none."""
    sizes = dict(zip(term, shape, strict=True))
    return _arrangement(term, [c for c in labels if c in term], sizes, tuple([sizes.get(c, 1) for c in labels]))


def _arrangement(term: Labels, wanted: list[str], sizes: Mapping[str, int], shape: Shape) -> _Arrangement:
    kept = [c for c in term if c in wanted]
    order = None if kept == wanted else [kept.index(c) for c in wanted]
    summed = [i for i, c in enumerate(term) if c not in wanted]
    return _Arrangement(summed, order, tuple([sizes[c] for c in wanted]), shape)


def _arrange(x: Tensor, to: _Arrangement) -> Tensor:
    if to.summed:
        x = x.sum(to.summed)
    if to.order is not None:
        x = x.permute(to.order)
    if x.spec.shape != to.sizes:
        x = x.expand(to.sizes)
    return x if to.shape == to.sizes else x.reshape(to.shape)
