"""`kl_divergence`, and the table of what it knows: `register_kl` adds to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from .distribution import Distribution

if TYPE_CHECKING:
    from ..tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])

_KL_REGISTRY: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[F], F]:
    """A decorator: `kl_divergence(p, q)` of these types, and of types that inherit from them, is what it decorates.

    The pair of nearest types is taken. Raises TypeError unless both, `type_p` and `type_q`, are classes, which need not
    inherit from Distribution.
    """
    for given in (type_p, type_q):
        if not isinstance(given, type):
            raise TypeError(f"register_kl(): expected classes of distributions, got {given!r}")

    def register(function: F) -> F:
        _KL_REGISTRY[type_p, type_q] = function
        _found.cache_clear()
        return function

    return register


@cache
def _found(type_p: type, type_q: type) -> Callable[[Any, Any], Any] | None:
    """Of the nearest types: those of `p` count first, as in PyTorch."""
    pairs = ((a, b) for a in type_p.__mro__ for b in type_q.__mro__ if (a, b) in _KL_REGISTRY)
    return next((_KL_REGISTRY[pair] for pair in pairs), None)


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence of `p` from `q`, in the shape to which their batch shapes broadcast. Raises
    NotImplementedError for pairs that nobody registered.
    """
    types: Any = (type(p), type(q))
    function = _found(*types)
    if function is None:
        raise NotImplementedError(f"kl_divergence(): norch has none of {type(p).__name__} and {type(q).__name__}")
    found: Tensor = function(p, q)
    return found
