"""The documented differences from PyTorch: docs/differences.md explains each to users, by the name that it has here."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from program import Outcome

Lines = tuple[str, ...]

COMPARISONS = r"(eq|ne|lt|le|gt|ge|not_equal|greater|greater_equal|less|less_equal)_"
NO_PART = (
    rf"\b({COMPARISONS}|(copysign|add[bm]?[bmr]*[mvr]|baddbmm)_?|fill_?|zero_?|matrix_power|scatter_reduce_?|index_reduce_?|vander|tile|"
    r"repeat|trapezoid|trapz|var|std|var_mean|std_mean|scaled_dot_product_attention|pow|norm|det|unfold|cat|concat\w*)\("
)


class Difference(NamedTuple):
    name: str
    program: str
    """What the program has, a regular expression."""
    failure: str = ""
    """What the failure says, a regular expression."""


DIFFERENCES: tuple[Difference, ...] = (
    Difference("repeated-elements", "", "share memory, as after expand"),
    Difference("overlapping-operands", "", "should raise .*input tensor and the written-to tensor refer to a single"),
    Difference("saves-less", "", "should raise .*(modified by an inplace operation|through the graph a second time)"),
    Difference("saves-more", "flip|repeat|index|sort", "saved for its gradient is gone"),
    Difference("data-is-watched", r"\.data\b", r"has changed it in place|variable is None|of the gradient"),
    Difference("layout-of-results", r"\.view\(", "cannot be viewed as|view size is not compatible"),
    Difference("more-dtypes", "", r"should raise .*(not implemented for|[Ee]xpected a floating)"),
    Difference(
        "constant-derivatives", "create_graph", "should raise .*does not require grad|requires_grad (True|False)"
    ),
    Difference("constant-derivatives", "create_graph", "raises AutogradError: .* does not require grad"),
    Difference("hooks-and-grad", r"register_hook.*autograd\.grad", "values "),
    Difference("none-or-zero", "", r"(grad|variable) is (None, should be zeros|zeros, should be None)"),
    Difference("none-or-zero", "allow_unused", r"^d: values \[\d\], should be \[\d\]"),
    Difference(
        "no-derivative", r"\b(unique|unique_consecutive|heaviside_?|slogdet)\(", "requires_grad False, should be True"
    ),
    Difference("no-derivative", r"\b(norm|vector_norm|dist)\(.*\b(p|ord)=0\b", "requires_grad False, should be True"),
    Difference("logical-in-place", r"\blogical_(and|or|xor|not)_\(", r"values .*should be \[[\d., ]+\]"),
    Difference(
        "the-tensor-itself",
        r"z = T?[\w.]*(broadcast_tensors|flatten|sum_to_size|ravel|interpolate)\(",
        r"^z\S*: grad is None, should be",
    ),
    Difference("in-place-on-expanded", r"(expand|unfold|as_strided)\(.*_\(", "share memory, as after expand"),
    Difference("all-any-uint8", r"uint8.*\b(all|any)\(", "dtype bool, should be uint8|norch.bool cannot hold"),
    Difference(
        "bool-arithmetic", r"T\.bool.*\b(matmul|bmm|mv|mm|inner|dot|vdot|tensordot|einsum|kron)\(", "cannot take bool"
    ),
    Difference(
        "bool-arithmetic",
        r"T\.bool.*\b(add|index_add)_?\(.*alpha=",
        "norch.bool|dtype int64, should be bool|norch.int64",
    ),
    Difference("bool-arithmetic", r"T\.bool.*\bpow_?\(", "pow\\(\\): cannot take bool"),
    Difference("sign-of-nan", r"\b(sign|sgn)_?\(", r"values \[nan"),
    Difference(
        "poles-of-polygamma",
        r"\b(polygamma|digamma_?|psi)\(",
        r"values( of the gradient)? \[-?(inf|0\.0, .*should be \[nan)",
    ),
    Difference("trapezoid-infinite", r"\b(trapezoid|trapz)\(", r"should be \[nan"),
    Difference(
        "variance-over-no-dims", r"\b(var|std|var_mean|std_mean)\(.*(\(\(\)|, \(\)|dim=\(\))", "values of the gradient"
    ),
    Difference("digits-in-float64", r"float64.*\b(digamma_?|psi|polygamma)\(", "values "),
    Difference("digits-in-float64", r"float64.*\b(hardsigmoid|sinc_?)\(", "values "),
    Difference("quantile-infinite", r"\b(nan)?quantile\(", r"should be \[nan"),
    Difference("median-of-no-integers", r"\b(nan)?median\(", "no elements"),
    Difference("squares-of-small-ints", r"int(8|16|32|64).*\b(atan2|arctan2)_?\(", "values of the gradient"),
    Difference("none-or-zero", r"\b(index_reduce_?|scatter_reduce_?|logcumsumexp)\(.*create_graph", "grad is None"),
    Difference("products-that-overflow", r"\bprod\(", r"\[nan"),
    Difference("corrcoef-of-constants", r"\bcorrcoef\(", r"values of the gradient \[nan"),
    Difference("nan-in-margins", r"\bmulti_margin_loss\(", r"values \[nan"),
)


def name_of(lines: Lines, failure: str) -> str | None:
    """The documented difference that a failure is, if it is one."""
    program = "\n".join(lines)
    for known in DIFFERENCES:
        if re.search(known.failure, failure, re.S) and re.search(known.program, program, re.S):
            return known.name
    return None


UNSTABLE = re.compile(r"\b(kthvalue|topk|mode|median|nanmedian|sort|argsort|msort|quantile|nanquantile)\(")

EXPANDED = re.compile(r"expand\(.*\b(median|nanmedian|kthvalue|mode)\(", re.S)


def undefined(lines: Lines, theirs: Outcome) -> bool:
    """Whether PyTorch itself does not define what this program gives."""
    if any("returns multiple views" in str(e) for e in theirs.errors.values()):
        return True
    if any(".mode(" in line for line in lines) and np.isnan(theirs.values["a"].values.astype(float)).any():
        return True
    if UNSTABLE.search("\n".join(lines)) and not any("z = z[0]" in line for line in lines) and "a" in theirs.values:
        values = theirs.values["a"].values
        if np.unique(values).size < values.size:
            return True  # which of equal elements is meant
    # PyTorch reads memory that is not the tensor's where these get an expanded one.
    return EXPANDED.search("\n".join(lines)) is not None
