# Written by packages/norch-core/stubs.py
from typing import Any

import norch.dispatch.codegen as dispatch_codegen
import norch.ops.copying as ops_copying
import norch.ops.creation_like as ops_creation_like
import norch.ops.elementwise.arithmetic as elementwise_arithmetic
import norch.ops.elementwise.bits as elementwise_bits
import norch.ops.elementwise.composites as elementwise_composites
import norch.ops.elementwise.error_function as elementwise_error_function
import norch.ops.elementwise.gamma as elementwise_gamma
import norch.ops.elementwise.special as elementwise_special
import norch.ops.elementwise.weighted as elementwise_weighted
import norch.ops.indexing as ops_indexing
import norch.ops.masks as ops_masks
import norch.ops.matrix.matmul as matrix_matmul
import norch.ops.matrix.products as matrix_products
import norch.ops.nn.activation as nn_activation
import norch.ops.nn.shrinking as nn_shrinking
import norch.ops.nn.softmax as nn_softmax
import norch.ops.random as ops_random
import norch.ops.reduction.norms as reduction_norms
import norch.ops.reduction.reductions as reduction_reductions
import norch.ops.reduction.scan as reduction_scan
import norch.ops.reduction.sorting as reduction_sorting
import norch.ops.reduction.statistics as reduction_statistics
import norch.ops.reduction.variance as reduction_variance
import norch.ops.sampling as ops_sampling
import norch.ops.scatter_copies as ops_scatter_copies
import norch.ops.shape.arranging as shape_arranging
import norch.ops.shape.edges as shape_edges
import norch.ops.shape.joining as shape_joining
import norch.ops.shape.strided as shape_strided
import norch.ops.shape.views as shape_views
import norch.tensor.assignment as tensor_assignment
import norch.tensor.dlpack as tensor_dlpack
import norch.tensor.elements as tensor_elements
import norch.tensor.indexing as tensor_indexing
import norch.tensor.inplace as tensor_inplace
import norch.tensor.interop as tensor_interop
import norch.tensor.late_methods as tensor_late_methods
import norch.tensor.linear_algebra as tensor_linear_algebra
import norch.tensor.memory as tensor_memory
import norch.tensor.op_methods as tensor_op_methods
import norch.tensor.shape_changes as tensor_shape_changes
import norch.tensor.sharing as tensor_sharing
import norch.tensor.special as tensor_special
import norch.tensor.transfer as tensor_transfer
from norch.tensor import Tensor

def reflected(self: Tensor, other: Any) -> Tensor: ...
def in_place(self: Tensor, *args: Any, **kwargs: Any) -> Tensor: ...
def late(self: Tensor) -> Any: ...

class OpMethods:
    __eq__ = elementwise_arithmetic.eq  # type: ignore[assignment]
    __ne__ = elementwise_arithmetic.ne  # type: ignore[assignment]
    __abs__ = elementwise_arithmetic.abs; __add__ = elementwise_arithmetic._add;
    __and__ = elementwise_arithmetic.bitwise_and; __array__ = tensor_interop.__array__;
    __array_wrap__ = tensor_interop.__array_wrap__; __bool__ = tensor_interop.__bool__;
    __contains__ = tensor_interop.__contains__; __copy__ = tensor_interop.__copy__;
    __deepcopy__ = tensor_interop.__deepcopy__; __dlpack__ = tensor_dlpack.__dlpack__;
    __dlpack_device__ = tensor_dlpack.__dlpack_device__; __float__ = tensor_interop.__float__;
    __floordiv__ = elementwise_arithmetic.floor_divide; __format__ = tensor_interop.__format__;
    __ge__ = elementwise_arithmetic.ge; __getitem__ = tensor_indexing.__getitem__; __gt__ = elementwise_arithmetic.gt;
    __iadd__ = in_place; __iand__ = in_place; __ifloordiv__ = in_place; __ilshift__ = in_place; __imod__ = in_place;
    __imul__ = in_place; __index__ = tensor_interop.__index__; __int__ = tensor_interop.__int__;
    __invert__ = elementwise_arithmetic.bitwise_not; __ior__ = in_place; __ipow__ = in_place; __irshift__ = in_place;
    __isub__ = in_place; __iter__ = tensor_interop.__iter__; __itruediv__ = in_place; __ixor__ = in_place;
    __le__ = elementwise_arithmetic.le; __len__ = tensor_interop.__len__;
    __lshift__ = elementwise_arithmetic.bitwise_left_shift; __lt__ = elementwise_arithmetic.lt;
    __matmul__ = matrix_matmul.matmul; __mod__ = elementwise_arithmetic.remainder; __mul__ = elementwise_arithmetic.mul;
    __neg__ = elementwise_arithmetic.neg; __or__ = elementwise_arithmetic.bitwise_or;
    __pos__ = elementwise_arithmetic.positive; __pow__ = elementwise_arithmetic._pow;
    __radd__ = elementwise_arithmetic._add; __rand__ = elementwise_arithmetic.bitwise_and;
    __reduce_ex__ = tensor_interop.__reduce_ex__; __reversed__ = tensor_interop.__reversed__; __rfloordiv__ = reflected;
    __rlshift__ = reflected; __rmatmul__ = matrix_matmul._rmatmul; __rmod__ = reflected;
    __rmul__ = elementwise_arithmetic.mul; __ror__ = elementwise_arithmetic.bitwise_or; __rpow__ = reflected;
    __rrshift__ = reflected; __rshift__ = elementwise_arithmetic.bitwise_right_shift; __rsub__ = reflected;
    __rtruediv__ = reflected; __rxor__ = elementwise_arithmetic.bitwise_xor;
    __setitem__ = tensor_assignment.__setitem__; __sub__ = elementwise_arithmetic._sub;
    __truediv__ = elementwise_arithmetic._div; __xor__ = elementwise_arithmetic.bitwise_xor;
    abs = elementwise_arithmetic.abs; abs_ = in_place; absolute = elementwise_arithmetic.abs; absolute_ = in_place;
    acos = elementwise_arithmetic.acos; acos_ = in_place; acosh = elementwise_arithmetic.acosh; acosh_ = in_place;
    add = elementwise_arithmetic.add; add_ = in_place; addbmm = matrix_products.addbmm; addbmm_ = in_place;
    addcdiv = elementwise_weighted.addcdiv; addcdiv_ = in_place; addcmul = elementwise_weighted.addcmul;
    addcmul_ = in_place; addmm = matrix_matmul.addmm; addmm_ = in_place; addmv = matrix_products.addmv;
    addmv_ = in_place; addr = matrix_products.addr; addr_ = in_place; all = reduction_reductions.all;
    allclose = elementwise_composites.allclose; amax = reduction_reductions.amax; amin = reduction_reductions.amin;
    aminmax = reduction_statistics.aminmax; any = reduction_reductions.any; apply_ = tensor_elements.apply_;
    arccos = elementwise_arithmetic.acos; arccos_ = in_place; arccosh = elementwise_arithmetic.acosh;
    arccosh_ = in_place; arcsin = elementwise_arithmetic.asin; arcsin_ = in_place;
    arcsinh = elementwise_arithmetic.asinh; arcsinh_ = in_place; arctan = elementwise_arithmetic.atan;
    arctan2 = elementwise_arithmetic.atan2; arctan2_ = in_place; arctan_ = in_place;
    arctanh = elementwise_arithmetic.atanh; arctanh_ = in_place; argmax = reduction_reductions.argmax;
    argmin = reduction_reductions.argmin; argsort = reduction_sorting.argsort; argwhere = ops_masks.argwhere;
    as_strided = shape_strided.as_strided; as_strided_ = tensor_shape_changes.as_strided_;
    as_strided_scatter = tensor_late_methods.as_strided_scatter; asin = elementwise_arithmetic.asin; asin_ = in_place;
    asinh = elementwise_arithmetic.asinh; asinh_ = in_place; atan = elementwise_arithmetic.atan;
    atan2 = elementwise_arithmetic.atan2; atan2_ = in_place; atan_ = in_place; atanh = elementwise_arithmetic.atanh;
    atanh_ = in_place; baddbmm = matrix_products.baddbmm; baddbmm_ = in_place; bernoulli = ops_random.bernoulli;
    bernoulli_ = ops_random.bernoulli_; bfloat16 = tensor_transfer.to_bfloat16;
    bincount = reduction_statistics.bincount; bitwise_and = elementwise_arithmetic.bitwise_and; bitwise_and_ = in_place;
    bitwise_invert = elementwise_arithmetic.bitwise_not; bitwise_invert_ = in_place;
    bitwise_left_shift = elementwise_arithmetic.bitwise_left_shift; bitwise_left_shift_ = in_place;
    bitwise_not = elementwise_arithmetic.bitwise_not; bitwise_not_ = in_place;
    bitwise_or = elementwise_arithmetic.bitwise_or; bitwise_or_ = in_place;
    bitwise_right_shift = elementwise_arithmetic.bitwise_right_shift; bitwise_right_shift_ = in_place;
    bitwise_xor = elementwise_arithmetic.bitwise_xor; bitwise_xor_ = in_place; bmm = matrix_matmul.bmm;
    bool = tensor_transfer.to_bool; broadcast_to = shape_views.broadcast_to; byte = tensor_transfer.byte;
    cauchy_ = ops_sampling.cauchy_; cdouble = tensor_transfer.cdouble; ceil = elementwise_arithmetic.ceil;
    ceil_ = in_place; celu_ = in_place; cfloat = tensor_transfer.cfloat; char = tensor_transfer.char;
    cholesky = tensor_linear_algebra.cholesky; cholesky_inverse = tensor_linear_algebra.cholesky_inverse;
    cholesky_solve = tensor_linear_algebra.cholesky_solve; chunk = shape_joining.chunk;
    clamp = elementwise_composites.clamp; clamp_ = tensor_inplace.clamp_; clamp_max = elementwise_composites.clamp_max;
    clamp_max_ = in_place; clamp_min = elementwise_composites.clamp_min; clamp_min_ = in_place;
    clip = elementwise_composites.clamp; clip_ = tensor_inplace.clamp_; clone = ops_copying.clone;
    contiguous = ops_copying.contiguous; copy_ = tensor_inplace.copy_; copysign = elementwise_special.copysign;
    copysign_ = in_place; corrcoef = reduction_statistics.corrcoef; cos = elementwise_arithmetic.cos; cos_ = in_place;
    cosh = elementwise_arithmetic.cosh; cosh_ = in_place; count_nonzero = reduction_reductions.count_nonzero;
    cov = reduction_statistics.cov; cpu = tensor_transfer.cpu; cross = matrix_products.cross;
    cuda = tensor_transfer.cuda; cummax = reduction_scan.cummax; cummin = reduction_scan.cummin;
    cumprod = reduction_scan.cumprod; cumprod_ = in_place; cumsum = reduction_scan.cumsum; cumsum_ = in_place;
    deg2rad = elementwise_composites.deg2rad; deg2rad_ = in_place; dense_dim = tensor_late_methods.dense_dim;
    det = late; diag = matrix_matmul.diag; diag_embed = shape_arranging.diag_embed; diagflat = shape_arranging.diagflat;
    diagonal = shape_views.diagonal; diagonal_scatter = ops_scatter_copies.diagonal_scatter; diff = reduction_scan.diff;
    digamma = elementwise_gamma.digamma; digamma_ = in_place; dim_order = tensor_late_methods.dim_order;
    dist = elementwise_composites.dist; div = elementwise_arithmetic.div; div_ = in_place;
    divide = elementwise_arithmetic.div; divide_ = in_place; dot = matrix_matmul.dot; double = tensor_transfer.double;
    dsplit = shape_arranging.dsplit; elu_ = in_place; eq = elementwise_arithmetic.eq; eq_ = in_place;
    equal = elementwise_composites.equal; erf = elementwise_arithmetic.erf; erf_ = in_place;
    erfc = elementwise_error_function.erfc; erfc_ = in_place; erfinv = elementwise_error_function.erfinv;
    erfinv_ = in_place; exp = elementwise_arithmetic.exp; exp2 = elementwise_special.exp2; exp2_ = in_place;
    exp_ = in_place; expand = shape_views.expand; expand_as = shape_views.expand_as;
    expm1 = elementwise_arithmetic.expm1; expm1_ = in_place; exponential_ = ops_sampling.exponential_;
    fill_ = tensor_inplace.fill_; fill_diagonal_ = tensor_shape_changes.fill_diagonal_;
    fix = elementwise_arithmetic.trunc; fix_ = in_place; flatten = shape_views.flatten; flip = shape_joining.flip;
    fliplr = shape_joining.fliplr; flipud = shape_joining.flipud; float = tensor_transfer.float_;
    float_power = elementwise_composites.float_power; float_power_ = in_place; floor = elementwise_arithmetic.floor;
    floor_ = in_place; floor_divide = elementwise_arithmetic.floor_divide; floor_divide_ = in_place;
    fmax = elementwise_composites.fmax; fmin = elementwise_composites.fmin; fmod = elementwise_special.fmod;
    fmod_ = in_place; frac = elementwise_composites.frac; frac_ = in_place; frexp = tensor_late_methods.frexp;
    gather = ops_indexing.gather; gcd = elementwise_special.gcd; gcd_ = in_place; ge = elementwise_arithmetic.ge;
    ge_ = in_place; geometric_ = ops_sampling.geometric_; geqrf = tensor_late_methods.geqrf; ger = matrix_matmul.outer;
    greater = elementwise_arithmetic.gt; greater_ = in_place; greater_equal = elementwise_arithmetic.ge;
    greater_equal_ = in_place; gt = elementwise_arithmetic.gt; gt_ = in_place; half = tensor_transfer.half;
    hardshrink = nn_shrinking.hardshrink; hardsigmoid_ = in_place; hardswish_ = in_place; hardtanh_ = in_place;
    heaviside = elementwise_special.heaviside; heaviside_ = in_place; histc = reduction_statistics.histc;
    histogram = tensor_special.histogram; hsplit = shape_arranging.hsplit; hypot = elementwise_composites.hypot;
    hypot_ = in_place; i0 = tensor_special.i0; i0_ = in_place; igamma = tensor_special.igamma; igamma_ = in_place;
    igammac = tensor_special.igammac; igammac_ = in_place; index_add = ops_indexing.index_add; index_add_ = in_place;
    index_copy = ops_indexing.index_copy; index_copy_ = in_place; index_fill = ops_indexing.index_fill;
    index_fill_ = in_place; index_put = tensor_assignment.index_put; index_put_ = tensor_assignment.index_put_;
    index_reduce = ops_scatter_copies.index_reduce; index_reduce_ = in_place; index_select = ops_indexing.index_select;
    inner = matrix_products.inner; int = tensor_transfer.int_; inverse = late;
    is_distributed = tensor_late_methods.is_distributed; is_pinned = tensor_memory.is_pinned;
    is_shared = tensor_sharing.is_shared; isclose = elementwise_composites.isclose;
    isfinite = elementwise_composites.isfinite; isinf = elementwise_composites.isinf;
    isnan = elementwise_composites.isnan; isneginf = elementwise_special.isneginf;
    isposinf = elementwise_special.isposinf; isreal = elementwise_special.isreal; item = tensor_interop.item;
    kron = matrix_products.kron; kthvalue = reduction_statistics.kthvalue; lcm = elementwise_special.lcm;
    lcm_ = in_place; ldexp = elementwise_special.ldexp; ldexp_ = in_place; le = elementwise_arithmetic.le;
    le_ = in_place; leaky_relu_ = in_place; lerp = elementwise_weighted.lerp; lerp_ = in_place;
    less = elementwise_arithmetic.lt; less_ = in_place; less_equal = elementwise_arithmetic.le; less_equal_ = in_place;
    lgamma = elementwise_gamma.lgamma; lgamma_ = in_place; log = elementwise_arithmetic.log;
    log10 = elementwise_arithmetic.log10; log10_ = in_place; log1p = elementwise_arithmetic.log1p; log1p_ = in_place;
    log2 = elementwise_arithmetic.log2; log2_ = in_place; log_ = in_place; log_normal_ = ops_sampling.log_normal_;
    log_softmax = nn_softmax.log_softmax; logaddexp = elementwise_composites.logaddexp;
    logaddexp2 = elementwise_special.logaddexp2; logcumsumexp = reduction_scan.logcumsumexp; logdet = late;
    logical_and = elementwise_composites.logical_and; logical_and_ = in_place;
    logical_not = elementwise_composites.logical_not; logical_not_ = in_place;
    logical_or = elementwise_composites.logical_or; logical_or_ = in_place;
    logical_xor = elementwise_composites.logical_xor; logical_xor_ = in_place; logit = elementwise_special.logit;
    logit_ = in_place; logsumexp = reduction_reductions.logsumexp; long = tensor_transfer.long;
    lt = elementwise_arithmetic.lt; lt_ = in_place; lu = tensor_late_methods.lu;
    lu_solve = tensor_linear_algebra.lu_solve; map_ = tensor_elements.map_; masked_fill = ops_masks.masked_fill;
    masked_fill_ = in_place; masked_scatter = ops_scatter_copies.masked_scatter; masked_scatter_ = in_place;
    masked_select = ops_masks.masked_select; matmul = matrix_matmul.matmul; matrix_exp = late;
    matrix_power = matrix_products.matrix_power; max = reduction_reductions.max;
    maximum = elementwise_arithmetic.maximum; mean = reduction_reductions.mean; median = reduction_reductions.median;
    min = reduction_reductions.min; minimum = elementwise_arithmetic.minimum; mish_ = in_place; mm = matrix_matmul.mm;
    mode = reduction_statistics.mode; moveaxis = shape_views.movedim; movedim = shape_views.movedim;
    msort = reduction_statistics.msort; mul = elementwise_arithmetic.mul; mul_ = in_place;
    multinomial = ops_sampling.multinomial; multiply = elementwise_arithmetic.mul; multiply_ = in_place;
    mv = matrix_matmul.mv; mvlgamma = tensor_special.mvlgamma; mvlgamma_ = in_place;
    nan_to_num = elementwise_composites.nan_to_num; nan_to_num_ = in_place; nanmean = reduction_statistics.nanmean;
    nanmedian = reduction_statistics.nanmedian; nanquantile = reduction_statistics.nanquantile;
    nansum = reduction_statistics.nansum; narrow = shape_views.narrow; narrow_copy = tensor_late_methods.narrow_copy;
    ne = elementwise_arithmetic.ne; ne_ = in_place; neg = elementwise_arithmetic.neg; neg_ = in_place;
    negative = elementwise_arithmetic.neg; negative_ = in_place; new = ops_creation_like.new;
    new_empty = ops_creation_like.new_empty; new_empty_strided = ops_creation_like.new_empty_strided;
    new_full = ops_creation_like.new_full; new_ones = ops_creation_like.new_ones;
    new_tensor = ops_creation_like.new_tensor; new_zeros = ops_creation_like.new_zeros;
    nextafter = elementwise_bits.nextafter; nextafter_ = in_place; nonzero = ops_masks.nonzero;
    nonzero_static = tensor_late_methods.nonzero_static; norm = reduction_norms.norm; normal_ = ops_random.normal_;
    not_equal = elementwise_arithmetic.ne; not_equal_ = in_place; numpy = tensor_interop.numpy;
    orgqr = tensor_late_methods.orgqr; ormqr = tensor_late_methods.ormqr; outer = matrix_matmul.outer;
    permute = shape_views.permute; permute_dims = shape_views.permute; pin_memory = tensor_memory.pin_memory;
    pinverse = tensor_linear_algebra.pinverse; polygamma = tensor_special.polygamma; polygamma_ = in_place;
    positive = elementwise_arithmetic.positive; pow = elementwise_arithmetic.pow; pow_ = in_place;
    prelu = nn_activation.prelu; prod = reduction_reductions.prod; put = ops_scatter_copies.put; put_ = in_place;
    qr = tensor_linear_algebra.qr; quantile = reduction_statistics.quantile; rad2deg = elementwise_composites.rad2deg;
    rad2deg_ = in_place; random_ = ops_random.random_; ravel = shape_views.ravel;
    reciprocal = elementwise_composites.reciprocal; reciprocal_ = in_place; record_stream = tensor_memory.record_stream;
    relu = nn_activation.relu; relu_ = in_place; remainder = elementwise_arithmetic.remainder; remainder_ = in_place;
    renorm = matrix_products.renorm; renorm_ = in_place; repeat = shape_joining.repeat;
    repeat_interleave = shape_joining.repeat_interleave; reshape = shape_views.reshape;
    reshape_as = shape_views.reshape_as; resize_ = tensor_shape_changes.resize_;
    resize_as_ = tensor_shape_changes.resize_as_; roll = shape_edges.roll; rot90 = shape_arranging.rot90;
    round = elementwise_arithmetic.round; round_ = in_place; rsqrt = elementwise_composites.rsqrt; rsqrt_ = in_place;
    scatter = ops_indexing.scatter; scatter_ = in_place; scatter_add = ops_indexing.scatter_add;
    scatter_add_ = in_place; scatter_reduce = ops_scatter_copies.scatter_reduce; scatter_reduce_ = in_place;
    searchsorted = reduction_sorting.searchsorted; select = shape_views.select;
    select_scatter = ops_scatter_copies.select_scatter; selu_ = in_place; set_ = tensor_shape_changes.set_;
    sgn = elementwise_special.sgn; sgn_ = in_place; share_memory_ = tensor_sharing.share_memory_;
    short = tensor_transfer.short; sigmoid = elementwise_arithmetic.sigmoid; sigmoid_ = in_place;
    sign = elementwise_arithmetic.sign; sign_ = in_place; signbit = elementwise_special.signbit; silu_ = in_place;
    sin = elementwise_arithmetic.sin; sin_ = in_place; sinc = elementwise_special.sinc; sinc_ = in_place;
    sinh = elementwise_arithmetic.sinh; sinh_ = in_place; slice_scatter = ops_scatter_copies.slice_scatter;
    slogdet = late; softmax = nn_softmax.softmax; sort = reduction_sorting.sort;
    sparse_dim = tensor_late_methods.sparse_dim; split = shape_joining.split; split_with_sizes = shape_joining.split;
    sqrt = elementwise_arithmetic.sqrt; sqrt_ = in_place; square = elementwise_composites.square; square_ = in_place;
    squeeze = shape_views.squeeze; squeeze_ = tensor_shape_changes.squeeze_; std = reduction_variance.std;
    sub = elementwise_arithmetic.sub; sub_ = in_place; subtract = elementwise_arithmetic.sub; subtract_ = in_place;
    sum = reduction_reductions.sum; sum_to_size = reduction_reductions.sum_to_size; svd = tensor_linear_algebra.svd;
    swapaxes = shape_views.swapaxes; swapaxes_ = tensor_shape_changes.transpose_; swapdims = shape_views.transpose;
    swapdims_ = tensor_shape_changes.transpose_; t = shape_views.t; t_ = tensor_shape_changes.t_;
    take = ops_indexing.take; take_along_dim = ops_indexing.take_along_dim; tan = elementwise_arithmetic.tan;
    tan_ = in_place; tanh = elementwise_arithmetic.tanh; tanh_ = in_place; tensor_split = shape_arranging.tensor_split;
    tile = shape_joining.tile; to = tensor_transfer.to; tolist = tensor_interop.tolist; topk = reduction_sorting.topk;
    trace = matrix_matmul.trace; transpose = shape_views.transpose; transpose_ = tensor_shape_changes.transpose_;
    triangular_solve = tensor_linear_algebra.triangular_solve; tril = matrix_matmul.tril; tril_ = in_place;
    triu = matrix_matmul.triu; triu_ = in_place; true_divide = elementwise_arithmetic.div; true_divide_ = in_place;
    trunc = elementwise_arithmetic.trunc; trunc_ = in_place; type = tensor_transfer.type_;
    type_as = tensor_transfer.type_as; unbind = shape_joining.unbind; unflatten = shape_views.unflatten;
    unfold = shape_strided.unfold; uniform_ = ops_random.uniform_; unique = reduction_sorting.unique;
    unique_consecutive = reduction_sorting.unique_consecutive; unsafe_chunk = tensor_late_methods.unsafe_chunk;
    unsafe_split = tensor_late_methods.unsafe_split;
    unsafe_split_with_sizes = tensor_late_methods.unsafe_split_with_sizes; unsqueeze = shape_views.unsqueeze;
    unsqueeze_ = tensor_shape_changes.unsqueeze_; var = reduction_variance.var; vdot = matrix_products.vdot;
    view = shape_views.view_as_shape; view_as = shape_views.view_as; vsplit = shape_arranging.vsplit;
    where = elementwise_arithmetic._where_method; xlogy = elementwise_special.xlogy; xlogy_ = in_place;
    zero_ = tensor_inplace.zero_
