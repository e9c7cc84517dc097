"""Which values an op is tried with: those that define what both libraries have to give."""

from __future__ import annotations

import re
from random import Random

import literals

CRASHING = ("div", "divide", "gcd", "lcm")
"""What PyTorch divides the smallest int by -1 in, which ends the process."""

SUMS = re.compile(
    ".*(matmul|mm$|mv$|bmm|addr|dot|inner|outer|ger|kron|cross|einsum|linear|dist|norm|mean|var|std|sum|prod|cov|corr|sim"
    "|trap|addc|logad|logcum|loss|div|diff|quantile|attention|vander|renorm|entropy|softm|bag|conv|fold|pool|interpolate)"
)
"""Where the largest numbers overflow or not by the order of the steps."""

SPREADING = re.compile(
    ".*(conv|linear|interpolate|loss|entropy|div$|renorm|attention|norm$|cov|corr|sim|var|std|dist|prod|prelu|reduce"
    "|chain|multi_dot|solve|hist|lerp|bag)"
)
"""Where one infinite number makes what is near it NaN, or not, by the way that it is computed."""

UNSTABLE = tuple(
    """kthvalue topk mode median nanmedian sort argsort msort aminmax quantile nanquantile
    adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices""".split()
)
"""Where it is not defined which of equal elements is meant: indices and gradients are compared where none are."""

NORMALISE = re.compile("normalize|cosine_similarity|.*_norm$")
"""What makes 1 of a single number: the gradient is 0, and what rounding leaves of it."""


def mood(r: Random, name: str, dtype: str) -> str:
    chosen = literals.mood(r)
    if name in CRASHING and dtype in literals.INTS:
        return "plain"
    if chosen != "special":
        return chosen
    return "plain" if SPREADING.match(name) else "infinite" if SUMS.match(name) else chosen
