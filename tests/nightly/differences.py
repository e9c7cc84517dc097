"""What norch does otherwise than PyTorch in PyTorch's own samples, each with a name, and the ops that it does not have.

A failure that no entry describes fails the test, and so does an op that is in neither list.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Difference(NamedTuple):
    name: str
    ops: str
    """The ops of which samples show it: a regular expression for their whole name."""
    failure: str
    """What the failure says: a regular expression."""
    reason: str


DIFFERENCES = (
    Difference(
        "constant-results",
        "bernoulli|cdist|combinations|linalg.matrix_power|(linalg.)?(vector_)?norm.*|linalg.slogdet|gather"
        r"|linalg\.householder_product|nn\.functional\.pdist",
        r"gradient: requires_grad \[",
        "A result that no change of the input changes does not require a gradient; PyTorch's gradient is zero.",
    ),
    Difference(
        "fixed-memory",
        "resize_|resize_as_|addbmm",
        "keeps its memory|an in-place op cannot change",
        "A tensor keeps its memory: nothing resizes it in place.",
    ),
    Difference(
        "views-in-place",
        r"as_strided.*",
        "in place: norch has no such method",
        "as_strided_ is not there; as_strided is.",
    ),
    Difference(
        "float-power-in-place",
        "float_power",
        "in place: accepted",
        "float_power_ computes in float64 and rounds to the tensor's dtype; PyTorch refuses all but float64.",
    ),
    Difference(
        "lstsq-results",
        r"linalg\.lstsq.*",
        r"result [1-3]: shape|gradient: requires_grad|\d results",
        "lstsq computes rank, singular values and residuals with every driver.",
    ),
    Difference(
        "full-factors",
        r"(linalg\.)?qr",
        "AutogradError: linalg",
        "No derivative of qr in mode 'complete' of tall matrices, nor in mode 'r'.",
    ),
    Difference(
        "hermitian-triangle",
        r"linalg\.pinv\.hermitian|cholesky_(inverse|solve)",
        "gradient: ",
        "With hermitian=True, and by a Cholesky factor, the gradient is that of the triangle that is read.",
    ),
    Difference(
        "matrix-exp-bfloat16",
        "matrix_exp",
        r"bfloat16\[.*PyTorch nan",
        "The exponential of bfloat16 matrices is computed in float32; PyTorch's is NaN.",
    ),
    Difference(
        "ctc-gradient",
        r"nn\.functional\.ctc_loss",
        "gradient: ",
        "The gradient is the derivative; PyTorch's is right only behind log_softmax, whose part it has in it.",
    ),
    Difference(
        "strided-scatter-gradient",
        "as_strided_scatter",
        "gradient: ",
        "The gradient of input is 0 where src came in its place; PyTorch's is 0 elsewhere.",
    ),
    Difference(
        "normal-gradient",
        "normal.*",
        "gradient: ",
        "Draws are differentiated by mean and std; PyTorch's gradient is zero.",
    ),
    Difference(
        "more-exact",
        r"nn\.functional\.hardsigmoid|cov|special\.(?:airy_ai|bessel_[jy][01])",
        r"\[float64|float64\[",
        "PyTorch rounds a factor to float32, or has 8 digits.",
    ),
    Difference(
        "stirling-at-one",
        r"nn\.functional\.poisson_nll_loss",
        "PyTorch nan",
        "The gradient by a target of 0 is a number.",
    ),
    Difference(
        "sum-to-same-size",
        "sum_to_size",
        "dtype torch.bool, PyTorch torch.int64",
        "sum_to_size of a 0-d tensor to its own size is that tensor.",
    ),
    Difference(
        "numbers-for-tensors",
        r"__r\w+__|[a-z_0-9]+|max\.binary|min\.binary|(special\.)?xlog\w+|special\.zeta",
        r"error: [\w.]+\((2|int64\[3\]\[1, 2, 3\]), (2|3|int64\[3\]\[1, 2, 3\])\): accepted",
        "A number is taken where PyTorch wants a tensor.",
    ),
    Difference(
        "bool-arithmetic",
        "add|index_add",
        "norch.int64, which a tensor of norch.bool cannot hold|dtype torch.int64, PyTorch torch.bool",
        "add and index_add with alpha compute bools in int64.",
    ),
    Difference(
        "accepted-arguments",
        r"narrow|nn\.functional\.max_pool[13]d|linalg\.cross|signal\.windows\.\w+",
        "error: .*accepted",
        "A 0-d bool is an index of narrow, no channels can be pooled, the operands of cross broadcast, and windows may "
        "have 16 bits.",
    ),
    Difference(
        "accepted-out",
        "aminmax|arange|cat|gather|multinomial",
        r"error: .*\bout=.*accepted",
        "out= takes any dtype that the result can be cast to.",
    ),
)


def name_of(op: str, failure: str) -> str | None:
    """The difference that a failure of an op's sample is, if it is one."""
    for known in DIFFERENCES:
        if re.fullmatch(known.ops, op) and re.search(known.failure, failure):
            return known.name
    return None


LACKING = {
    "masked and ragged tensors": """
        masked.amax masked.amin masked.argmax masked.argmin masked.cumprod masked.cumsum
        masked.log_softmax masked.logaddexp masked.logsumexp masked.mean masked.median masked.norm masked.normalize
        masked.prod masked.softmax masked.softmin masked.std masked.sum masked.var
    """,
    "pooling and sampling": """
        grid_sampler_2d grid_sampler_3d
    """,
    "what PyTorch's own code calls": """
        _batch_norm_with_update _chunk_cat _native_batch_norm_legit _unsafe_masked_index
        _unsafe_masked_index_put_accumulate _upsample_bilinear2d_aa alias_copy as_strided_copy
        diagonal_copy expand_copy hash_tensor jiterator_2inputs_2outputs
        jiterator_4inputs_with_extra_args jiterator_binary jiterator_binary_return_by_ref jiterator_unary
        max_pool2d_with_indices_backward native_batch_norm native_dropout_backward native_group_norm
        native_layer_norm permute_copy slice split_with_sizes_copy squeeze_copy t_copy torch._scaled_mm
        torch._scaled_mm_v2 torch.ops.aten._efficient_attention_forward torch.ops.aten._flash_attention_forward
        torch.ops.aten._safe_softmax.default transpose_copy unbind_copy unfold_copy unsqueeze_copy
        view_copy
    """,
    "names that PyTorch advises against": """
        __rdiv__
    """,
    "linear algebra": """
        linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve
    """,
    "others": """
        cauchy chalf exponential geometric log_normal uniform
    """,
}
"""The ops of PyTorch's samples that norch does not have, by what they are for. In place `exponential_` is there."""
