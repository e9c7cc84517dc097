"""Einstein summation, as matrix products."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from ...errors import ShapeError
from ...spec import Shape

if TYPE_CHECKING:
    from ...tensor import Tensor


def contract(equation: str, operands: list[Tensor]) -> Tensor:
    """See `norch.einsum`. Raises ShapeError for an equation that does not fit its operands."""
    terms, output = _parse(equation, tuple([tuple(x.spec.shape) for x in operands]))
    sizes: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=True):
        for label, n in zip(term, x.spec.shape, strict=True):
            if sizes.setdefault(label, n) not in (n, 1) and n != 1:
                shapes = ", ".join(str(tuple(o.spec.shape)) for o in operands)
                raise ShapeError(
                    f"einsum(): {equation!r}: {label!r} has sizes {sizes[label]} and {n} in shapes {shapes}"
                )
            sizes[label] = max(sizes[label], n)
    parts = [_diagonals(x, term) for x, term in zip(operands, terms, strict=True)]
    result, labels = parts[0]
    for i, (x, term) in enumerate(parts[1:], 1):
        needed = set(output).union(*(t for _, t in parts[i + 1 :]))
        result, labels = _pair(result, labels, x, term, needed, sizes)
    summed = [i for i, label in enumerate(labels) if label not in output]
    if summed:
        result = result.sum(summed, dtype=result.dtype)
        labels = [label for label in labels if label in output]
    return result.permute([labels.index(label) for label in output]) if labels != output else result


@lru_cache(maxsize=1024)
def _parse(equation: str, shapes: tuple[Shape, ...]) -> tuple[list[list[str]], list[str]]:
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
    full = [[*head, *[f"...{i}" for i in range(widest - extra, widest)], *tail] for head, extra, tail in parsed]
    dots_labels = [f"...{i}" for i in range(widest)]
    if not arrow:
        letters = [c for term in full for c in term if not c.startswith("...")]
        return full, dots_labels + sorted(c for c in set(letters) if letters.count(c) == 1)
    head, dots, tail = right.partition("...")
    output = [*head, *(dots_labels if dots else []), *tail]
    known = {c for term in full for c in term}
    if len(set(output)) != len(output) or not set(output) <= known:
        raise ShapeError(f"einsum(): {equation!r}: the output {right!r} repeats a label or names an unknown one")
    return full, output


def _diagonals(x: Tensor, term: list[str]) -> tuple[Tensor, list[str]]:
    """Takes the diagonal of dims that share a label."""
    if len(set(term)) == len(term):
        return x, term
    labels = list(term)
    for label in set(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = x.diagonal(0, first, second)
            labels = [c for i, c in enumerate(labels) if i not in (first, second)] + [label]
    return x, labels


def _pair(
    a: Tensor, a_labels: list[str], b: Tensor, b_labels: list[str], needed: set[str], sizes: dict[str, int]
) -> tuple[Tensor, list[str]]:
    """The product of two operands, summed over the labels that no other operand and not the output has."""
    a, a_labels = _sum_unshared(a, a_labels, needed | set(b_labels))
    b, b_labels = _sum_unshared(b, b_labels, needed | set(a_labels))
    shared = [c for c in a_labels if c in b_labels]
    batch = [c for c in shared if c in needed]
    inner = [c for c in shared if c not in needed]
    rows = [c for c in a_labels if c not in shared]
    columns = [c for c in b_labels if c not in shared]

    def arrange(x: Tensor, labels: list[str], *groups: list[str]) -> Tensor:
        ordered = [c for group in groups for c in group]
        if ordered != labels:
            x = x.permute([labels.index(c) for c in ordered])
        whole = tuple([sizes[c] for c in ordered])
        if x.spec.shape != whole:
            x = x.expand(whole)
        shape = (*[sizes[c] for c in batch], *[prod([sizes[c] for c in group]) for group in groups[1:]])
        return x if shape == whole else x.reshape(shape)

    left = arrange(a, a_labels, batch, rows, inner)
    right = arrange(b, b_labels, batch, inner, columns)
    out = left @ right
    labels = batch + rows + columns
    shape = tuple([sizes[c] for c in labels])
    return out if out.spec.shape == shape else out.reshape(shape), labels


def _sum_unshared(x: Tensor, labels: list[str], needed: set[str]) -> tuple[Tensor, list[str]]:
    """Sums over the labels that are not needed."""
    summed = [i for i, c in enumerate(labels) if c not in needed]
    return (x.sum(summed, dtype=x.dtype), [c for c in labels if c in needed]) if summed else (x, labels)
