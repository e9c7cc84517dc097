"""All ops, family by family, under the names that they have as `norch.*`."""

from __future__ import annotations

from .copying import clone
from .creation import (
    arange,
    as_tensor,
    empty,
    empty_like,
    eye,
    from_numpy,
    frombuffer,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    tensor,
    zeros,
    zeros_like,
)
from .creation_like import empty_strided, logspace, scalar_tensor
from .elementwise.arithmetic import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    cos,
    cosh,
    div,
    eq,
    erf,
    exp,
    expm1,
    floor,
    floor_divide,
    ge,
    gt,
    le,
    log,
    log1p,
    log2,
    log10,
    lt,
    maximum,
    minimum,
    mul,
    ne,
    neg,
    positive,
    pow,
    remainder,
    round,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    sub,
    tan,
    tanh,
    trunc,
    where,
)
from .elementwise.composites import (
    addcdiv,
    addcmul,
    allclose,
    clamp,
    clamp_max,
    clamp_min,
    cross,
    deg2rad,
    dist,
    equal,
    float_power,
    fmax,
    fmin,
    fmod,
    frac,
    hypot,
    isclose,
    isfinite,
    isinf,
    isnan,
    lerp,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    nan_to_num,
    rad2deg,
    reciprocal,
    rsqrt,
    square,
)
from .elementwise.gamma import digamma, lgamma, polygamma
from .elementwise.special import (
    copysign,
    erfc,
    erfinv,
    exp2,
    gcd,
    heaviside,
    isneginf,
    isposinf,
    isreal,
    lcm,
    ldexp,
    logaddexp2,
    logit,
    rsub,
    sgn,
    signbit,
    sinc,
    xlogy,
)
from .indexing import (
    argwhere,
    gather,
    index_add,
    index_copy,
    index_fill,
    index_select,
    masked_fill,
    masked_select,
    nonzero,
    one_hot,
    scatter,
    scatter_add,
    take,
    take_along_dim,
)
from .matrix.matmul import addmm, bmm, diag, dot, einsum, matmul, mm, mv, outer, trace, tril, triu
from .matrix.products import (
    addbmm,
    addmv,
    addr,
    baddbmm,
    block_diag,
    cdist,
    chain_matmul,
    inner,
    kron,
    matrix_power,
    pdist,
    renorm,
    tensordot,
    vdot,
)
from .nn.activation import (
    celu,
    elu,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    silu,
    softmax,
    softmin,
    softplus,
    softsign,
    threshold,
)
from .nn.attention import scaled_dot_product_attention
from .nn.classification import cross_entropy, nll_loss
from .nn.convolution import conv1d, conv2d, conv_transpose1d, conv_transpose2d
from .nn.dropout import dropout
from .nn.embedding import embedding
from .nn.linear import bilinear, linear
from .nn.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    smooth_l1_loss,
)
from .nn.normalization import batch_norm, cosine_similarity, group_norm, layer_norm, normalize, rms_norm
from .nn.pixels import channel_shuffle, pixel_shuffle, pixel_unshuffle
from .nn.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, avg_pool1d, avg_pool2d, max_pool1d, max_pool2d
from .optimizer import (
    adadelta_step_,
    adagrad_step_,
    adam_step_,
    adamax_step_,
    asgd_step_,
    lion_step_,
    nadam_step_,
    radam_step_,
    rmsprop_step_,
    rprop_step_,
    sgd_step_,
)
from .random import (
    Generator,
    bernoulli,
    current_generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    normal,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    seed,
    set_rng_state,
    use_generator,
)
from .reduction.reductions import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    count_nonzero,
    logsumexp,
    max,
    mean,
    median,
    min,
    norm,
    prod,
    std,
    sum,
    var,
    var_mean,
)
from .reduction.scan import cummax, cummin, cumprod, cumsum, cumulative_trapezoid, diff, logcumsumexp, trapezoid
from .reduction.sorting import argsort, bucketize, isin, searchsorted, sort, topk, unique, unique_consecutive
from .reduction.statistics import (
    aminmax,
    bincount,
    corrcoef,
    cov,
    histc,
    kthvalue,
    mode,
    msort,
    nanmean,
    nanmedian,
    nanquantile,
    nansum,
    quantile,
    std_mean,
)
from .sampling import multinomial
from .scatter_copies import (
    diagonal_scatter,
    index_reduce,
    masked_scatter,
    put,
    scatter_reduce,
    select_scatter,
    slice_scatter,
)
from .shape.arranging import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    cartesian_prod,
    column_stack,
    combinations,
    diag_embed,
    diagflat,
    dsplit,
    dstack,
    hsplit,
    rot90,
    tensor_split,
    tril_indices,
    triu_indices,
    unravel_index,
    vander,
    vsplit,
)
from .shape.joining import (
    cat,
    chunk,
    flip,
    fliplr,
    flipud,
    hstack,
    meshgrid,
    pad,
    repeat_interleave,
    roll,
    split,
    stack,
    tile,
    unbind,
    vstack,
)
from .shape.strided import as_strided
from .shape.views import (
    broadcast_tensors,
    broadcast_to,
    diagonal,
    flatten,
    movedim,
    narrow,
    permute,
    reshape,
    select,
    squeeze,
    t,
    transpose,
    unflatten,
    unsqueeze,
)

# PyTorch's and the array API's other names.
absolute, arccos, arccosh, arcsin, arcsinh = abs, acos, acosh, asin, asinh
arctan, arctan2, arctanh, clip, concat, concatenate = atan, atan2, atanh, clamp, cat, cat
divide, true_divide, multiply, subtract, negative = div, div, mul, sub, neg
fix, greater, greater_equal, less, less_equal, not_equal = trunc, gt, ge, lt, le, ne
moveaxis, permute_dims, swapaxes, swapdims, ravel = movedim, permute, transpose, transpose, flatten
asarray, bitwise_invert = as_tensor, bitwise_not
ger, row_stack, trapz, split_with_sizes = outer, vstack, trapezoid, split


def result_type(*operands: object) -> object:
    """The dtype that arithmetic on these tensors and Python scalars has."""
    from ..dtype import result_dtype
    from .families import describe

    return result_dtype(*describe(*[getattr(v, "spec", type(v)) for v in operands]))


def broadcast_shapes(*shapes: tuple[int, ...]) -> object:
    """The shape that all of `shapes` broadcast to. Raises ShapeError where there is none."""
    from ..spec import Size
    from ..spec import broadcast_shapes as common

    return Size(common(*[tuple(s) for s in shapes]))


def __getattr__(name: str) -> object:
    """Ops of plug-ins."""
    if not name.startswith("_"):
        from ..plugin_ops import lookup

        found: object = lookup(name)
        if found is not None:
            globals()[name] = found
            return found
    raise AttributeError(f"module 'norch.ops' has no attribute {name!r}")
