"""The documented differences from PyTorch: docs/differences.md explains each to users, by the name that it has here."""

from __future__ import annotations

import re
from typing import NamedTuple

import moods
import numpy as np
from program import Outcome

Lines = tuple[str, ...]


class Difference(NamedTuple):
    name: str
    program: str
    """What the program has, a regular expression."""
    failure: str = ""
    """What the failure says, a regular expression."""


DIFFERENCES: tuple[Difference, ...] = (
    Difference("overlapping-operands", "", "should raise .*input tensor and the written-to tensor refer to a single"),
    Difference(
        "overlapping-operands",
        r"as_strided|expand\(.*(zero|fill)_\(",
        "should raise .*more than one element of the written-to tensor",
    ),
    Difference("saves-less", "", "should raise .*(modified by an inplace operation|through the graph a second time)"),
    Difference("casts-beyond-range", r"(inf|nan|e\+\d\d).*\.(byte|char|short|int|long|to)\(", "values "),
    Difference(
        "results-that-are-views",
        r"(no_grad|\b(t|transpose|swapaxes|swapdims|squeeze|unsqueeze)_\().*autograd\.grad",
        "variable is None",
    ),
    Difference("second-by-result", r"\bnorm\(.*create_graph.*autograd\.grad", r"^v\d+\S*: variable is None, should be"),
    Difference(
        "second-by-result", r"(v\d+) = \S*\b(norm|logsumexp)\(.*create_graph.*autograd\.grad\(.*\[.*\1\]", r"^v\d+\S*: "
    ),
    Difference("bias-of-norms", r"\b(instance|batch)_norm\(.*bias=.*create_graph", r"^\w: grad is .*, should be None"),
    Difference("prelu-at-0", r"\bprelu\(.*create_graph", "values of the gradient"),
    Difference("gradient-through-logarithm", r"\blogcumsumexp\(.*create_graph", "values of the gradient"),
    Difference("rates-in-float32", r"float64.*optim\.(ASGD|NAdam)\(", r"values"),
    Difference("unshuffled-nothing", r"pixel_unshuffle\(|PixelUnshuffle\(", r"shape \(.*\b0,.*, should be \(.*\b0,"),
    Difference(
        "trace-of-tall-matrices",
        r"\btrace\(",
        r"^(d\[0\]: values|\w+: values of the gradient) \[0\.0, .*, should be \[(?!0\.0)",
    ),
    Difference(
        "batches-of-nothing",
        r"(MultiheadAttention|Transformer\w*)\(",
        r"raises ShapeError: scaled_dot_product_attention\(\): shapes .* do not broadcast: dim -2 has sizes",
    ),
    Difference(
        "batches-of-nothing",
        r"conv_transpose\dd\(|ConvTranspose\dd\(",
        r"raises ShapeError: conv_transpose\dd\(\): input \(0, .* gives no result of a definite size",
    ),
    Difference(
        "batch-norm-of-permuted-images",
        r"\.(permute|transpose|movedim|t)\(.*[Bb]atch_?[Nn]orm",
        "^a: values of the gradient",
    ),
    Difference("saves-more", "flip|repeat|index|sort", "saved for its gradient is gone"),
    Difference("data-is-watched", r"\.data\b.*(backward|grad)\(", "has changed it in place|variable is None|values"),
    Difference("layout-of-results", r"\.view\(", "cannot be viewed as|view size is not compatible"),
    Difference(
        "more-dtypes", "", r"should raise .*(not implemented for|[Ee]xpected a floating|Autograd not support dtype)"
    ),
    Difference("constant-results", "create_graph", "raise.* does not require grad|requires_grad (True|False)"),
    Difference("hooks-and-grad", r"register_hook.*autograd\.grad", "values "),
    Difference("constant-results", "", r"(grad|variable) is (None, should be zeros|zeros, should be None)"),
    Difference("constant-results", "allow_unused", r"^d: values \[\d\], should be \[\d\]"),
    Difference(
        "constant-results",
        r"\b(index_reduce_?|scatter_reduce_?|logcumsumexp|copysign_?)\(.*create_graph",
        "grad is None, should be",
    ),
    Difference(
        "constant-results",
        r"\b(unique|unique_consecutive|heaviside_?|nextafter_?|slogdet|norm|vector_norm|dist|histogram|histogramdd)\(",
        "requires_grad False, should be True",
    ),
    Difference("logical-in-place", r"\blogical_(and|or|xor|not)_\(", r"values .*should be \[[\d., ]+\]"),
    Difference(
        "the-tensor-itself", r"(broadcast_tensors|[Ff]latten|sum_to_size|ravel)\(", r"^z\S*: grad is None, should be"
    ),
    Difference("the-tensor-itself", r"\bDropout[13]d\(0\.0\)", r"^z: grad is .*, should be None"),
    Difference(
        "integers-in-the-graph",
        r"dtype=T\.(bool|u?int)|T\.tensor\(\[*-?\d+[\],]",
        "should raise .*a leaf Variable that requires grad is being used",
    ),
    Difference("in-place-on-expanded", "", "share memory, as after expand"),
    Difference("all-any-uint8", r"uint8.*\b(all|any)\(", "dtype bool, should be uint8|norch.bool cannot hold"),
    Difference("bool-arithmetic", r"T\.bool.*\b(matmul|bmm|mv|mm|inner|v?dot|tensordot|einsum)\(", "cannot take bool"),
    Difference("bool-arithmetic", r"T\.bool.*\b(add|index_add)_?\(.*alpha=", r"norch\.(bool|int64)|should be bool"),
    Difference(
        "bool-arithmetic", r"(T\.bool|True|False)\).*\b(cumsum|cumprod)_\(", "a tensor of norch.bool cannot hold"
    ),
    Difference("bool-arithmetic", r"T\.bool.*\bpow_?\(", r"pow\(\): cannot take bool"),
    Difference("sign-of-nan", r"\b(sign|sgn)_?\(", r"values \[nan"),
    Difference(
        "poles-of-polygamma",
        r"\b(polygamma|digamma_?|psi)\(",
        r"values( of the gradient)? \[-?(inf|0\.0, .*should be \[nan)",
    ),
    Difference("variance-over-no-dims", r"\b(var|std|var_mean|std_mean)\([^\n]*(?<!\w)\(\)", "values of the gradient"),
    Difference("median-of-no-integers", r"\b(nan)?median\(", "no elements"),
    Difference("cosine-below-eps", r"\bcosine_similarity\(.*eps=", "of the gradient"),
    Difference(
        "0-d-operands",
        r"(?=.*float16).*T\.tensor\(-?[\d.e+-]+(, dtype=T\.float(32|64))?\)",
        r"values( of the gradient)? \[(-?inf|[^\]]*\], should be \[-?inf)",
    ),
    Difference(
        "integer-operands",
        r"(int(8|16|32|64)|T\.tensor\(\[*-?\d+[\],)]).*\b(atan2|arctan2|addcmul|addcdiv|ldexp)_?\(",
        r"values of the gradient|^d\[\d\]: values",
    ),
    Difference("more-exact", r"float64.*\b(digamma_?|psi|polygamma|lgamma_?|gammaln)\(", "values "),
    Difference("more-exact", r"float64.*\b(hardsigmoid|Hardsigmoid|sinc_?|binary_cross_entropy)\(", "values "),
    Difference("more-exact", r"arange\(\d{5,}\).*float64.*\b(var|std|var_mean|std_mean)\(", "values "),
    Difference("more-exact", r"\bndtr\(", r"values \[\d[\d.]*e-\d\d.*should be \[0\.0"),
    Difference("through-infinity", r"\b(trapezoid|trapz|quantile|nanquantile)\(", r"should be \[nan"),
    Difference("through-infinity", r"\b(var|std|var_mean|std_mean)\(.*correction=", r"values of the gradient \[nan"),
    Difference("through-infinity", r"\b(remainder_?|polygamma_?)\(", r"should be \[nan"),
    Difference("scatter-reduce-without-self", r"\b(scatter|index)_reduce_?\(.*include_self=False", "of the gradient"),
    Difference("through-infinity", r"\b(float_power_?|pow_?)\(", r"values \[inf, .*should be \[nan"),
    Difference("through-infinity", r"\b(prod|multi_margin_loss)\(", r"(values|should be) \[nan"),
    Difference("through-infinity", r"\b(prod|corrcoef|xlogy_?|xlog1py)\(", r"values of the gradient \[nan"),
)


def name_of(lines: Lines, failure: str) -> str | None:
    """The documented difference that a failure is, if it is one."""
    program = "\n".join(lines)
    for known in DIFFERENCES:
        if re.search(known.failure, failure, re.S) and re.search(known.program, program, re.S):
            return known.name
    return None


UNSTABLE = re.compile(rf"\b({'|'.join(moods.UNSTABLE)})\(")

EXPANDED = re.compile(r"expand\(.*\b(median|nanmedian|kthvalue|mode|batch_norm)\(", re.S)


def undefined(lines: Lines, theirs: Outcome) -> bool:
    """Whether PyTorch itself does not define what this program gives."""
    program = "\n".join(lines)
    if any("returns multiple views" in str(e) for e in theirs.errors.values()):
        return True
    # PyTorch reads memory that is not the tensor's where these get an expanded one.
    if EXPANDED.search(program):
        return True
    values = theirs.values["a"].values if "a" in theirs.values else np.zeros(0)
    if re.search(r"\b(mode|unique)\(", program) and np.isnan(values.astype(float)).any():
        return True
    # Which of equal elements is meant.
    return "z = z[0]" not in program and np.unique(values).size < values.size and bool(UNSTABLE.search(program))
