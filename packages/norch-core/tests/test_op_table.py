"""The places that an op is written in agree: its entry, its NumPy kernel, its sample record, its method."""

from __future__ import annotations

import inspect
import re

import pytest

import norch
import norch.ops.nn.rectified  # of captured steps, and loaded with them
import norch.ops.nn.residual
import norch.ops.nn.sampling  # which is loaded late
from norch import ops
from norch.backend.contract import BINARY, COMPARISON, PRIMITIVES, REDUCTION, UNARY, Operand
from norch.device import CPU
from norch.dispatch.op import all_ops
from norch.dtype import bool_, float32, int64
from norch.ops.families import by_name
from norch.tensor import Tensor
from norch.testing.samples import SAMPLES
from norch.testing.samples.record import build, flat

TENSOR, VECTOR, INDEX = Operand(float32, (2, 3), (3, 1)), Operand(float32, (4,), (1,)), Operand(int64, (2, 3), (3, 1))
NUMBER, WHOLE = Operand(float32, (), (), True), Operand(int64, (), (), True)
MATRIX = Operand(float32, (2, 2), (2, 1))
TYPICAL = {
    "copy": ((TENSOR, TENSOR), {}),
    "fill": ((TENSOR, NUMBER), {}),
    "where": ((TENSOR, TENSOR._replace(dtype=bool_), TENSOR, TENSOR), {}),
    "cumsum": ((TENSOR, TENSOR), {"dim": 1}),
    "matmul": ((MATRIX, MATRIX, MATRIX), {}),
    "gather": ((TENSOR, TENSOR, INDEX), {"dim": 0}),
    "scatter": ((TENSOR, INDEX, TENSOR), {"dim": 0}),
    "scatter_add": ((TENSOR, INDEX, TENSOR), {"dim": 0}),
    "sort": ((TENSOR, INDEX, TENSOR), {"dim": 1, "descending": False}),
    "arange": ((VECTOR, NUMBER, NUMBER), {}),
    "random": ((TENSOR, WHOLE, WHOLE), {"kind": "uniform"}),
}


def typical(name):
    """Operands and attributes that every backend takes for a primitive."""
    if name in TYPICAL:
        return TYPICAL[name]
    dtype = int64 if name.startswith("bitwise") else float32
    one = TENSOR._replace(dtype=dtype)
    if name in UNARY:
        return (one, one), {}
    if name in BINARY:
        return (one, one, one), {}
    if name in COMPARISON:
        return (one._replace(dtype=bool_), one, one), {}
    assert name in REDUCTION
    result = {"any": bool_, "all": bool_, "argmax": int64, "argmin": int64}.get(name, float32)
    source = bool_ if result is bool_ else float32
    return (Operand(result, (2, 1), (1, 1)), TENSOR._replace(dtype=source)), {"dims": (1,)}


# Ops that draw, make tensors from data or from nothing, are not about tensors, or return nothing: they have tests of
# their own.
WITHOUT_RECORD = frozenset(
    """
    tensor as_tensor asarray from_numpy frombuffer zeros ones empty full eye arange linspace
    zeros_like ones_like empty_like full_like result_type broadcast_shapes tril_indices triu_indices multinomial
    empty_strided logspace scalar_tensor grid_sample interpolate ctc_loss kept_boxes
    adaptive_max_indices multi_margin_rows roi_align bin_weights regions_by_image im2col col2im deform_columns
    rand randn randint randperm rand_like randn_like randint_like bernoulli normal Generator default_generator
    manual_seed seed initial_seed get_rng_state set_rng_state sgd_step_ adam_step_ adamax_step_ nadam_step_
    radam_step_ adagrad_step_ adadelta_step_ rmsprop_step_ asgd_step_ rprop_step_ lion_step_
    update_averages_ total_norm scale_
    current_generator use_generator quantize_weight dequantize_weight
    """.split()
)
METHODS_WITHOUT_RECORD = frozenset(
    """
    dim ndimension size numel nelement element_size stride storage_offset is_contiguous is_floating_point is_complex
    is_signed is_inference data_ptr storage untyped_storage requires_grad_ zero_grad backward detach_ register_hook
    retain_grad as_subclass numpy item tolist to cpu cuda type type_as float double half bfloat16 long int short char
    cfloat cdouble byte bool new_empty new_zeros new_ones new_full new_tensor bernoulli
    fill_ zero_ copy_ uniform_ normal_ bernoulli_ random_ exponential_ geometric_ cauchy_ log_normal_ multinomial
    float_power_
    det logdet slogdet inverse pinverse cholesky cholesky_inverse cholesky_solve lu_solve matrix_exp qr svd
    triangular_solve new_empty_strided new get_device is_nonzero is_same_size is_set_to is_conj
    conj angle stft is_neg
    is_shared is_coalesced squeeze_ unsqueeze_ transpose_ t_ as_strided_ resize_ resize_as_ set_ fill_diagonal_ adjoint
    to_dense
    to_sparse to_sparse_csc to_sparse_csr sparse_mask
    i0 igamma igammac mvlgamma i0_ igamma_ igammac_ mvlgamma_ polygamma_ conj_physical_
    histogram
    as_strided_scatter dense_dim dim_order frexp geqrf is_distributed lu narrow_copy nonzero_static orgqr ormqr
    sparse_dim unsafe_chunk unsafe_split unsafe_split_with_sizes
    sum_to_size where apply_ map_ pin_memory is_pinned record_stream share_memory_ register_post_accumulate_grad_hook
    """.split()
)


def public_functions():
    found = {name: getattr(ops, name) for name in dir(ops) if not name.startswith("_")}
    return {name: value for name, value in found.items() if callable(value) and not inspect.ismodule(value)}


def public_methods():
    return {name: getattr(Tensor, name) for name in dir(Tensor) if not name.startswith("_")}


def aliases(names):
    """Names by the object they stand for."""
    found = {}
    for name, value in names.items():
        found.setdefault(id(value), []).append(name)
    return found


def test_primitives_are_those_of_the_contract():
    entries = {name for name, op in by_name().items() if op.kind == "primitive"}
    assert entries == PRIMITIVES


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_every_primitive_has_a_numpy_kernel(name):
    operands, attrs = typical(name)
    assert CPU.backend.compile(name, operands, attrs) is not None


def test_composites_have_a_decomposition():
    assert not [op for op in by_name().values() if op.kind == "composite" and op.decompose is None]


def test_every_public_function_has_a_record():
    known = {id(getattr(ops, name)) for name in SAMPLES if hasattr(ops, name)}
    missing = [
        names
        for key, names in aliases(public_functions()).items()
        if key not in known and not WITHOUT_RECORD.intersection(names)
    ]
    assert not missing, f"no sample record for {missing}"


def test_every_method_has_a_record():
    known = {s.method_name for s in SAMPLES.values()} | {s.inplace for s in SAMPLES.values()} | set(SAMPLES)
    methods = {name: m for name, m in public_methods().items() if callable(m)}
    missing = [
        names
        for names in aliases(methods).values()
        if not known.intersection(names) and not METHODS_WITHOUT_RECORD.intersection(names)
    ]
    assert not missing, f"no sample record for the methods {missing}"


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=list(SAMPLES))
def test_what_a_record_names_exists(sample):
    assert callable(sample.function)
    for name in (sample.method_name, sample.inplace, sample.operator):
        assert name is None or callable(getattr(Tensor, name, None)), f"Tensor has no method {name}"
    assert sample.cases
    assert all(any(c.operands()) for c in sample.cases)


def test_exceptions_are_not_stale():
    functions = public_functions()
    assert not [n for n in WITHOUT_RECORD if n not in functions and n != "default_generator"]
    assert not [n for n in METHODS_WITHOUT_RECORD if not hasattr(Tensor, n)]


def test_every_function_is_in_norch():
    assert not [name for name, value in public_functions().items() if getattr(norch, name, None) is not value]


NOT_DIFFERENTIABLE = frozenset(
    "eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift any all "
    "argmax argmin argsort arange random fill scatter scatter_add searchsorted true_indices exponential_of_uniform "
    "bin_counts histogram max_pool2d_indices gamma_proposal poisson_of_uniform kept_boxes "
    "adaptive_max_indices log_gamma_draw poisson_draw exponential_draw race_keys triangle_indices".split()
)


DIFFERENTIATED_BY_PARTS = frozenset(
    "atan2_grad batch_norm_grad batch_norm_relu batch_norm_relu_grad batch_norm_running_grad "
    "binary_cross_entropy_grad multi_margin_rows_grad "
    "binary_cross_entropy_with_logits_grad clipped_difference_grad cross_entropy_grad carried_back "
    "cross_entropy_rows_grad cumprod_grad ctc_alphas ctc_grad distances_grad elu_grad gelu_grad "
    "grid_sample2d_grid_grad group_norm_grad hardsigmoid_grad grid_sample3d_grid_grad hardshrink_grad hardswish_grad "
    "hardtanh_grad logsigmoid_grad softshrink_grad softsign_grad "
    "kl_div_grad l1_loss_grad layer_norm_grad leaky_relu_grad linear_input_grad linear_weight_grad log_softmax_grad "
    "mish_grad mse_loss_grad nll_loss_grad pairwise_distances_grad prelu_grad prelu_weight_grad prod_of_others "
    "recurrence_grad relu_grad residual_norm residual_norm_grad rms_norm_grad scaled_dot_product_attention_grad "
    "scaled_dot_product_attention_mask_grad scaled_dot_product_attention_sums_grad sigmoid_grad silu_grad sinc_grad "
    "softmax_grad softplus_grad tanh_grad threshold_grad variance_grad grid_sample2d_bicubic_grid_grad gated "
    "deform_columns_offset_grad".split()
)


def test_every_differentiable_op_has_a_rule():
    """`scatter` and `scatter_add` write into memory; the ops that users call are functional_scatter(_add). The routines
    of norch.linalg and the product of norch.sparse get their derivatives there."""
    elsewhere = {name for name in by_name() if name.startswith("linalg_")} | {"coo_matmul"}
    without = {name for name, op in by_name().items() if op.rules is None} - elsewhere
    assert without == NOT_DIFFERENTIABLE | DIFFERENTIATED_BY_PARTS


GRADIENT_ELSEWHERE = frozenset("batch_norm expand_as mode nanquantile quantile reshape_as vander view_as".split())
"""Differentiable, with records that check values only: one of the operands has no gradient, or it is tested by hand."""


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES.values() if not s.differentiable and float32 in s.dtypes], ids=lambda s: s.name
)
def test_only_records_without_gradient_give_constants(sample):
    """What the kit does not differentiate requires no gradient; a record of special values, `max.nan`, has another."""
    if "." in sample.name:
        assert sample.name.split(".")[0] in SAMPLES
        return
    for case in sample.cases:
        made = build(sample, case, float32, requires_grad=True)
        assert any(x.requires_grad for x in made.tensors)
        results = flat(sample.function(*made.args, **made.kwargs))
        assert any(getattr(y, "requires_grad", False) for y in results) == (sample.name in GRADIENT_ELSEWHERE)


def test_rules_cover_every_operand():
    for op in all_ops():
        if op.rules is not None:
            assert len(op.rules) == len(op.tensors), op


@pytest.mark.parametrize("owner", [public_functions, public_methods], ids=["functions", "methods"])
def test_everything_public_has_a_docstring(owner):
    written = {n: v for n, v in owner().items() if inspect.isfunction(v) or isinstance(v, property)}
    without = [name for name, value in written.items() if not (inspect.getdoc(value) or "").strip()]
    assert not without


@pytest.mark.parametrize("owner", [public_functions, public_methods], ids=["functions", "methods"])
def test_docstrings_say_what_a_function_does(owner):
    """A first sentence of its own: it ends, is no mere name, and is about nothing else (it was not copied)."""
    names: dict[str, set[str]] = {}
    for name, value in owner().items():
        if not inspect.isfunction(value):
            continue
        first = " ".join(inspect.getdoc(value).partition("\n\n")[0].split())
        assert first.endswith((".", ":")), f"{name}: {first!r}"
        assert len(re.findall(r"\w+|[-+*/<>=~&|^%]+", first)) >= 2, f"{name}: {first!r}"
        assert first.lower().strip(".:`") != name, name
        names.setdefault(first, set()).add(value.__name__)
    assert not [same for same in names.values() if len(same) > 1 and same not in SYNONYMS]


SYNONYMS = ({"dim", "ndimension"}, {"numel", "nelement"}, {"is_conj", "is_complex"})


def test_functions_and_in_place_methods_go_by_their_names():
    """What `repr`, a traceback and `grad_fn` show."""
    for owner in (public_functions(), {n: m for n, m in public_methods().items() if n.endswith("_")}):
        for name, value in owner.items():
            if inspect.isfunction(value):
                assert owner.get(value.__name__) is value, f"{name} is called {value.__name__}"
