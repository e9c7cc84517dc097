"""PyTorch's functions of complex tensors, which norch does not have: they raise when they are called."""

from __future__ import annotations

from .paths import lacking

_INSTEAD = (
    "it has no complex dtypes: keep the real and imaginary parts in a last dim of 2, or as two tensors (the product of "
    "(a, b) and (c, d) is (a c - b d, a d + b c))"
)
view_as_real, view_as_complex = (lacking("", name, _INSTEAD) for name in ("view_as_real", "view_as_complex"))
complex, polar = (lacking("", name, _INSTEAD) for name in ("complex", "polar"))
