"""What each op is called with: a line names ops of one kind, then words for their arguments, after `|` optional ones.

Words that make tensors: `x` the first, of any shape, `x(2-4)` of so many dims, `x(m,k)` of these sizes, each letter
one size throughout the call; `o` an operand that broadcasts with x, a number at times; `same` one of x's shape. `f`
before them asks for floats, `i` for integers, `b` for bool (`fx`, `io`, `bsame`, `fx(m,n)`). All other words are
functions of arguments.py. An op may be in several lines, or with a dot, for one form of it.
"""

SIGNATURES = """
abs absolute acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh ceil cos cosh deg2rad digamma
  erf erfc erfinv exp exp2 expm1 fix floor frac isfinite isinf isnan isneginf isposinf lgamma log log10 log1p log2
  logical_not neg negative positive rad2deg reciprocal relu rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt square tan
  tanh trunc expit psi gammaln ndtr ndtri entr real detach clone: x
round: x | decimals=int(-2,3)
logit: fx | eps=choice(None,1e-6,0.2)
polygamma: int(0,3) fx
mvlgamma: fx int(1,3)
bitwise_not: ix
nan_to_num: x | nan=num posinf=num neginf=num

add sub subtract rsub: x o | alpha=num
mul multiply true_divide atan2 arctan2 eq ne lt le gt ge not_equal greater greater_equal less less_equal maximum minimum
  fmax fmin fmod remainder floor_divide pow float_power hypot copysign logaddexp logaddexp2 logical_and logical_or
  logical_xor xlogy xlog1py heaviside nextafter ldexp isclose: x o
div divide: x o | rounding_mode=choice(None,'trunc','floor')
bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm: ix io
equal allclose: x same
T.where: bmask x o
.where: x mask o
lerp: fx fo weight
addcmul addcdiv: fx fo fo | value=coefficient
clamp clip: x bound bound
clamp clip: x | min=bound max=bound
clamp_min: x | min=bound
clamp_max: x | max=bound
clamp_min clamp_max: x bound
dist: fx fo | p=choice(0,1,2,3,inf)

sum nansum: x | dim=dims keepdim=bool dtype=wider_dtype
mean nanmean: fx | dim=dims keepdim=bool
prod: x | dtype=wider_dtype
prod: x dim | keepdim=bool
all any: x | dim=dims keepdim=bool
amax amin: x | dim=dims keepdim=bool
argmax argmin: x | dim=dim keepdim=bool
max min: x
max min median nanmedian: x dim | keepdim=bool
median nanmedian: x
max min: x same
aminmax: x | dim=dim keepdim=bool
mode: x | dim=dim keepdim=bool
kthvalue: x one | dim=last keepdim=bool
topk: x one | dim=last largest=bool
sort: x | dim=dim descending=bool stable=true
argsort: x stable=true | dim=dim descending=bool
msort: x
logsumexp: fx dims | keepdim=bool
var std var_mean std_mean: fx | dim=dims correction=choice(0,1,2) keepdim=bool
var std: fx dims | unbiased=bool keepdim=bool
count_nonzero: x | dim=dims
quantile nanquantile: fx fraction
  | dim=dim keepdim=bool interpolation=choice('linear','lower','higher','nearest','midpoint')
norm: fx | p=choice(0,1,2,3,inf,-inf,'fro',0.5) dim=dims keepdim=bool
vector_norm: fx | ord=choice(0,1,2,3,inf,-inf,0.5) dim=dims keepdim=bool
matrix_norm: fx(2-4) | ord=choice('fro','nuc',1,-1,inf,2)
normalize: fx | p=choice(1,2,3,inf) dim=dim eps=choice(1e-12,0.1)
renorm: fx(2-3) choice(1,2,3) dim choice(0.5,2.0)
cumsum: x dim | dtype=wider_dtype
cumprod logcumsumexp: fx dim
cummax cummin: x dim
trace: x(m,n)
histc: fx(1-2) | bins=int(1,6) min=choice(-1,0) max=choice(1,2)
histogram: fx(m,n) int(1,5) | density=bool
histogramdd: fx(m,h) int(1,4) | density=bool
bincount: nonnegative | minlength=int(0,6)
unique: x | return_inverse=bool return_counts=bool dim=dim
unique_consecutive: x | return_inverse=bool return_counts=bool dim=dim
isin: x same
diff: x | n=int(0,3) dim=dim
trapezoid trapz cumulative_trapezoid: fx | dx=choice(1,0.5) dim=dim
cov corrcoef: fx(1-2)
searchsorted: fsorted fo(3) | right=bool
bucketize: fx fsorted | right=bool
nonzero argwhere: x
combinations: x(n) | r=int(1,3) with_replacement=bool

matmul: x(m,k) x(k,n)
matmul: x(b,m,k) x(k,n)
matmul: x(k) x(b,k,n)
matmul: x(b,m,k) x(k)
matmul: x(b,1,m,k) x(c,k,n)
mm: x(m,k) x(k,n)
mm matmul: x(L,K) x(K,N)
mv: x(m,k) x(k)
dot vdot inner: x(k) x(k)
outer ger: x(m) x(n)
bmm: x(b,m,k) x(b,k,n)
addmm: fx(m,n) fx(m,k) fx(k,n) | beta=coefficient alpha=coefficient
addmm: fx(n) fx(m,k) fx(k,n) | beta=coefficient
addmv: fx(m) fx(m,k) fx(k) | beta=coefficient alpha=coefficient
addr: fx(m,n) fx(m) fx(n) | beta=coefficient alpha=coefficient
baddbmm: fx(b,m,n) fx(b,m,k) fx(b,k,n) | beta=coefficient alpha=coefficient
addbmm: fx(m,n) fx(b,m,k) fx(b,k,n) | beta=coefficient alpha=coefficient
kron: x(m,n) x(k)
cross: fx(m,3) fx(m,3) | dim=last
tensordot: x(m,k) x(k,n) | dims=1
einsum: choice('ij,jk->ik','ij,jk','ij,jk->','ij,jk->kij','ij,jk->ki') x(m,k) x(k,n)
einsum: choice('ii->i','ii','ij->ji','ij->j') x(n,n)
chain_matmul: fx(m,k) fx(k,n) fx(n,b)
vecdot: fx(m,k) fx(m,k)
linear: fx(b,m,k) fx(n,k) | bias=fx(n)
bilinear: fx(b,m) fx(b,k) fx(n,m,k) | bias=fx(n)
cdist: fx(m,k) fx(n,k) | p=choice(0,1,2,3,inf)
pdist: fx(H,h) | p=choice(0,1,2,3,inf)
cosine_similarity: fx same | dim=last eps=choice(1e-8,0.1)
pairwise_distance: fx(m,k) fx(m,k) | p=choice(1,2,3) keepdim=bool
det slogdet logdet inv inverse pinv pinverse matrix_rank: matrix
lu lu_factor: matrix
cholesky: positive_definite
solve: matrix fx(3,h)
matrix_power: matrix int(-1,4)
svdvals cond: matrix
eigvalsh: positive_definite

t: x(0-2)
fliplr: x(2-4)
flipud ravel atleast_1d atleast_2d atleast_3d: x
transpose swapaxes swapdims: x dim dim
permute: x order
movedim moveaxis: x dim dim
reshape view: x shape
flatten: x | start_dim=dim
squeeze: x | dim=dims
unsqueeze: x newdim
expand broadcast_to: x wider
narrow: x dim start one
select: x dim start
unbind: x | dim=dim
chunk: x int(1,5) | dim=dim
unsafe_chunk: x int(1,5) | dim=dim
split: x int(1,4) | dim=dim
unsafe_split: x int(1,4) | dim=dim
tensor_split: x int(1,5) | dim=dim
tensor_split: x indices | dim=dim
hsplit: x(2-3) indices
diagonal: x(2-4) | offset=int(-2,3)
diag: x(1-2) | diagonal=int(-2,3)
diag_embed: x(1-3) | offset=int(-2,3)
diagflat: x | offset=int(-2,3)
tril triu: x(2-4) | diagonal=int(-3,4)
unfold: x last window int(1,3)
unflatten: x last factors
as_strided: x(n) choice((2,2),(3,),(1,2),()) choice((1,1),(0,1),(2,),(1,))
repeat: x repeats
tile: x repeats
repeat_interleave: x int(1,4) | dim=dim
flip: x dims
roll: x int(-4,5) | dims=dim
rot90: x(2-3) | k=int(-3,5)
cat concat concatenate: parts | dim=dim
stack: alike | dim=newdim
hstack vstack dstack column_stack row_stack: alike
block_diag: x(m,n) x(k)
meshgrid: x(m) x(n) | indexing='ij'
cartesian_prod: x(m) x(n)
broadcast_tensors: x o
vander: x(n) | N=int(0,4) increasing=bool
pad: x padding
pad: fx(3-4) choice([1,1],[0,2],[1,0]) | mode=choice('reflect','replicate','circular')

gather: x dim index
take_along_dim: x index_like dim_of
scatter: x dim scattered src
scatter_add: x dim scattered src
scatter_reduce: fx dim scattered src choice('sum','prod','mean','amax','amin') | include_self=bool
index_select: x dim positions
index_add: x dim positions chosen | alpha=num
index_copy: x dim positions_once chosen_once
index_fill: x dim positions num
index_reduce: fx dim positions chosen choice('prod','mean','amax','amin')
take: x flat_positions
put: x flat_positions_once flat_values
masked_fill: x mask num
masked_select: x mask
masked_scatter: x mask same
select_scatter: x slice_of dim_of start_of
slice_scatter: x same | dim=dim
diagonal_scatter: x(n,n) x(n)
embedding: embedded fx(9,n) | padding_idx=choice(0,-1)
one_hot: nonnegative
unravel_index: nonnegative choice((9,2),(3,5))

celu elu: fx | alpha=choice(1.0,0.5,2.0)
gelu: fx | approximate=choice('none','tanh')
hardshrink softshrink: fx | lambd=choice(0.5,0.0,1.0)
hardsigmoid hardswish logsigmoid mish relu6 selu silu softsign tanhshrink: fx
hardtanh: fx | min_val=choice(-1.0,-0.1,0.0) max_val=choice(1.0,0.3,2)
leaky_relu: fx | negative_slope=choice(0.01,-0.5,0.0)
softplus: fx | beta=choice(1.0,2.0,0.5) threshold=choice(20.0,1.0)
threshold: x choice(0.5,0,1) choice(20,0,3)
threshold: fx choice(0.5,0,-1) choice(20,0,-3)
prelu: fx(b,n) fx(n)
rrelu: fx
glu: fx(m,4) | dim=last
softmax log_softmax: fx dim | dtype=choice(T.float64)
softmin: fx dim

layer_norm rms_norm: fx(2-4) normalized | weight=normal_weight eps=choice(1e-5,0.1)
group_norm: fx(b,4,n,m) choice(1,2,4) | weight=fx(4) bias=fx(4)
batch_norm: fx(b,n,m) None None fx(n) fx(n) true | eps=choice(1e-5,0.1)
batch_norm: fx(b,n,m) None None None None true
batch_norm: fx(b,n) fx(n) variance | weight=fx(n) bias=fx(n)
instance_norm: fx(b,h,m) | weight=fx(h) bias=fx(h)
local_response_norm: fx(b,n,m) int(1,4)

conv1d: fx(b,4,W) fx(n,4,w) | bias=fx(n) stride=int(1,3) padding=int(0,2) dilation=int(1,3)
conv1d: fx(b,4,W) fx(6,2,w) | groups=2
conv_tbc: fx(W,b,4) fx(w,4,n) fx(n) | pad=int(0,2)
conv2d: fx(b,4,H,W) fx(n,4,h,w) | bias=fx(n) stride=int(1,3) padding=int(0,2) dilation=int(1,3)
conv2d: fx(b,4,H,W) fx(4,1,h,w) | bias=fx(4) stride=int(1,3) padding=choice(0,1,'same','valid')
conv2d: fx(4,H,W) fx(2,2,h,w) | padding=choice((1,0),(0,2))
conv_transpose1d: fx(b,4,W) fx(4,n,w) | bias=fx(n) stride=int(1,3) padding=int(0,2)
conv_transpose2d: fx(b,4,H,W) fx(4,n,h,w) | bias=fx(n) stride=int(1,3) padding=int(0,2)
max_pool1d: fx(b,n,W) int(1,4) | stride=int(1,3) padding=int(0,2) ceil_mode=bool
max_pool2d: fx(b,n,H,W) int(1,4) | stride=int(1,3) padding=int(0,2) ceil_mode=bool dilation=int(1,3)
avg_pool1d: fx(b,n,W) int(1,4) | stride=int(1,3) padding=int(0,2) ceil_mode=bool count_include_pad=bool
avg_pool2d: fx(b,n,H,W) int(1,4) | stride=int(1,3) padding=int(0,2) ceil_mode=bool count_include_pad=bool
lp_pool1d: fx(b,n,W) choice(1,2,3) int(1,4) | ceil_mode=bool
lp_pool2d: fx(b,n,H,W) choice(1,2,3) int(1,4) | ceil_mode=bool
adaptive_avg_pool1d adaptive_max_pool1d: fx(b,n,W) int(1,6)
adaptive_avg_pool2d adaptive_max_pool2d: fx(b,n,H,W) choice(1,2,3,(2,3),(None,2))
conv3d: fx(b,2,h,H,W) fx(n,2,h,h,w) | bias=fx(n) stride=int(1,3) padding=int(0,2) dilation=int(1,3)
conv_transpose3d: fx(b,2,h,H,W) fx(2,n,h,h,w) | bias=fx(n) stride=int(1,3) padding=int(0,2)
max_pool3d: fx(b,n,W,H,W) int(1,4) | stride=int(1,3) padding=int(0,2) ceil_mode=bool
avg_pool3d: fx(b,n,W,H,W) int(1,4) | stride=int(1,3) padding=int(0,2) ceil_mode=bool count_include_pad=bool
lp_pool3d: fx(b,n,W,H,W) choice(1,2,3) int(1,4) | ceil_mode=bool
adaptive_avg_pool3d adaptive_max_pool3d: fx(b,n,W,H,W) choice(1,2,3,(2,3,2),(None,2,1))
interpolate: fx(b,n,H,W) choice(3,5,(2,7)) | mode=choice('nearest','bilinear','bicubic')
interpolate: fx(b,n,H,W) | scale_factor=choice(2,0.5,1.7,(1,2)) mode=choice('nearest','bilinear')
interpolate: fx(b,n,H,W) choice(3,5,(2,7)) | mode=choice('bilinear','bicubic') antialias=True
interpolate: fx(b,n,W) choice(3,5,7) | mode=choice('nearest','linear')
pixel_shuffle: fx(b,4,H,W) choice(1,2)
pixel_unshuffle: fx(h,w,4,6) choice(1,2)
channel_shuffle: fx(b,4,H,W) choice(1,2,4)
fold: fx(b,8,9) choice((4,4)) choice(2)
unfold: fx(b,n,H,W) choice(1,2,3) | dilation=int(1,3) padding=int(0,2) stride=int(1,3)
scaled_dot_product_attention: fx(b,c,m,k) fx(b,c,n,k) fx(b,c,n,k) | is_causal=bool scale=choice(0.5,1.0)
scaled_dot_product_attention: fx(b,m,k) fx(b,n,k) fx(b,n,k) | attn_mask=fx(m,n)

mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss hinge_embedding_loss: fx fsame | reduction=reduction
kl_div: fx fsame | reduction=reduction log_target=bool
poisson_nll_loss: fx fsame | reduction=reduction log_input=bool full=bool
gaussian_nll_loss: fx(m,n) fx(m,n) variance(m,n) | reduction=reduction full=bool
binary_cross_entropy: probability probability_same | reduction=reduction
binary_cross_entropy_with_logits: fx probability_same | reduction=reduction
multilabel_soft_margin_loss: fx(m,n) probability(m,n) | reduction=reduction
cross_entropy nll_loss: fx(m,9) classes(m) | reduction=reduction weight=fweight(9) ignore_index=choice(-100,1)
linear_cross_entropy: fx(m,h) fx(9,h) classes(m) | linear_bias=fx(9) reduction=reduction
cross_entropy: fx(m,9,n) classes(m,n) | reduction=reduction label_smoothing=choice(0.0,0.1)
cross_entropy: fx(m,h) probability(m,h) | reduction=reduction
multi_margin_loss: fx(m,9) classes(m) | reduction=reduction p=choice(1,2)
margin_ranking_loss: fx(m) fx(m) signs(m) | margin=choice(0,0.5) reduction=reduction
cosine_embedding_loss: fx(m,n) fx(m,n) signs(m) | margin=choice(0,0.5) reduction=reduction
triplet_margin_loss: fx(m,n) fx(m,n) fx(m,n) | p=choice(1,2) swap=bool reduction=reduction

arange: coefficient coefficient choice(1,2,0.5,3) | dtype=choice(T.float32,T.float64,T.int64,T.int16)
arange: int(-3,9) | dtype=choice(T.float32,T.float64,T.int64,T.int16)
range: choice(0,1) choice(3,2.5)
linspace: coefficient coefficient int(0,9) | dtype=fdtype
logspace: choice(0,-1) choice(1,2) int(0,6)
zeros ones: shape_any | dtype=dtype
full: shape_any num | dtype=dtype
eye: int(0,4) | m=int(0,4)
zeros_like ones_like: x | dtype=dtype
full_like: x num | dtype=dtype
new_zeros new_ones: x shape_any
new_full: x shape_any num
tril_indices triu_indices: int(0,5) int(0,5) | offset=int(-2,3)
hann_window hamming_window blackman_window bartlett_window: choice(0,1,3,4,7) | periodic=bool
kaiser_window: int(1,7)
scalar_tensor: num | dtype=dtype
fill: x num
type_as view_as reshape_as expand_as: x same
sum_to_size: x narrower
to type: x dtype
contiguous double float half bfloat16 int long short char byte bool tolist item numel dim nelement ndimension size
  is_contiguous stride adjoint is_floating_point is_signed element_size: x
zero: x
isreal is_nonzero: x
is_same_size: x same
dsplit: x(3-4) indices
vsplit: x(2-4) indices
split_with_sizes: x(1-3) parts_of
unsafe_split_with_sizes: x(1-3) parts_of
index_put: x(1-3) places element | accumulate=bool
fill_diagonal_: x(2-3) num
copy_: x o
multi_dot: factors_of
solve_triangular: matrix fx(3,h) upper=bool
embedding_bag: classes(m,k) fx(9,n) | mode=choice('sum','mean','max')
multilabel_margin_loss: fx(h,4) labels(h,4) | reduction=reduction
triplet_margin_with_distance_loss: fx(m,n) fx(m,n) fx(m,n) | margin=choice(0.5,1.0) swap=bool reduction=reduction
adaptive_max_pool1d_with_indices: fx(b,n,W) int(1,6)
adaptive_max_pool2d_with_indices: fx(b,n,H,W) choice(1,2,(2,3))
upsample: fx(b,n,H,W) choice(3,5) | mode=choice('nearest','bilinear')
"""

LEFT_OUT = {
    "random numbers": """
        alpha_dropout bernoulli bernoulli_ binomial cauchy_ dropout dropout1d dropout2d dropout3d exponential_
        feature_alpha_dropout geometric_ get_rng_state gumbel_softmax initial_seed log_normal_ manual_seed
        multinomial normal normal_ poisson rand rand_like randint randint_like randn randn_like random_ randperm seed
        set_rng_state uniform_
    """,
    "settings": """
        are_deterministic_algorithms_enabled clear_autocast_cache get_autocast_cpu_dtype get_autocast_dtype
        get_autocast_gpu_dtype get_default_device get_default_dtype get_deterministic_debug_mode
        get_float32_matmul_precision get_num_interop_threads get_num_threads is_anomaly_enabled
        is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled
        is_deterministic_algorithms_warn_only_enabled is_grad_enabled is_inference_mode_enabled
        set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_dtype set_autocast_enabled
        set_autocast_gpu_dtype set_default_device set_default_dtype
        set_default_tensor_type set_deterministic_debug_mode set_float32_matmul_precision set_flush_denormal
        set_num_interop_threads set_num_threads set_printoptions use_deterministic_algorithms
    """,
    "memory that is not defined": """
        empty empty_like empty_strided new new_empty new_empty_strided resize_ resize_as_ set_
    """,
    "what is no computation: files, devices, storages, questions": """
        as_subclass compile cpu cuda data_ptr dense_dim dim_order from_dlpack from_file from_numpy frombuffer
        get_device get_device_module is_coalesced is_complex is_conj is_distributed is_inference is_neg
        is_pinned is_set_to is_shared is_storage is_tensor load numpy pin_memory record_stream save
        share_memory_ sparse_dim storage storage_offset to_dense typename untyped_storage
    """,
    "made of values or functions of Python": """
        apply_ vmap as_tensor asarray broadcast_shapes can_cast map_ new_tensor promote_types result_type sym_float
        sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum tensor while_loop
    """,
    "in all programs of gradients": """
        backward register_hook register_post_accumulate_grad_hook requires_grad_ retain_grad
    """,
    "of several right answers, or with arguments that depend on each other; they have tests of their own": """
        adaptive_max_pool3d_with_indices as_strided_scatter cholesky_ex cholesky_inverse cholesky_solve ctc_loss eigh
        empty_permuted fake_quantize_per_channel_affine fake_quantize_per_tensor_affine fractional_max_pool2d
        fractional_max_pool2d_with_indices fractional_max_pool3d fractional_max_pool3d_with_indices frexp
        frobenius_norm geqrf gradient grouped_mm householder_product inv_ex lobpcg lstsq lu_factor_ex lu_solve
        lu_unpack matrix_exp max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices max_unpool1d
        max_unpool2d max_unpool3d multi_head_attention_forward narrow_copy native_channel_shuffle nonzero_static
        norm_except_dim orgqr ormqr pca_lowrank qr segment_reduce solve_ex svd svd_lowrank tensorinv tensorsolve
        triangular_solve upsample_bilinear upsample_nearest
    """,
    "functions that are compared with more digits than PyTorch has, in tests of their own": """
        airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u
        chebyshev_polynomial_v chebyshev_polynomial_w erfcx gammainc gammaincc hermite_polynomial_h
        hermite_polynomial_he i0 i0e i1 i1e igamma igammac laguerre_polynomial_l legendre_polynomial_p log_ndtr
        modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 multigammaln
        scaled_modified_bessel_k0 scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t
        shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w
        spherical_bessel_j0 zeta
    """,
    "sparse tensors, complex pairs and sampling, which have tests of their own beside PyTorch": """
        affine_grid angle cdouble cfloat complex conj conj_physical dsmm eig eigvals grid_sample imag istft polar
        resolve_conj resolve_neg smm sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor sparse_mask spmm stft
        to_sparse to_sparse_coo to_sparse_csc to_sparse_csr view_as_complex view_as_real
    """,
}
"""What both libraries have and no line names, by the reason."""
