"""Namespaces, switches and old names that PyTorch scripts use around tensors."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import norch


def test_functions_in_place():
    x = norch.tensor([-1.0, 4.0])
    assert norch.relu_(x) is x
    assert norch.sqrt_(x).tolist() == [0, 2]
    assert norch.fill_(x, 3).tolist() == [3, 3]
    with pytest.raises(AttributeError, match="no attribute 'nothing_'"):
        norch.nothing_


def test_old_tensor_types():
    x = norch.FloatTensor([1, 2])
    assert (x.dtype, x.tolist()) == (norch.float32, [1, 2])
    assert norch.LongTensor(2, 3).shape == (2, 3)
    assert norch.ByteTensor([1]).dtype is norch.uint8
    assert isinstance(x, norch.FloatTensor)
    assert not isinstance(x, norch.DoubleTensor)
    with pytest.warns(DeprecationWarning, match="arange"):
        assert norch.range(1, 2, 0.5).tolist() == [1, 1.5, 2]


def test_default_tensor_type():
    norch.set_default_tensor_type("torch.DoubleTensor")
    try:
        assert norch.ones(1).dtype is norch.float64
        norch.set_default_tensor_type(norch.FloatTensor)
        assert norch.ones(1).dtype is norch.float32
    finally:
        norch.set_default_dtype(norch.float32)
    with pytest.raises(norch.DTypeError, match="no tensor type"):
        norch.set_default_tensor_type("torch.NoTensor")


def test_a_device_is_a_context():
    from norch.testing.null import null_device

    with norch.device(null_device()):
        assert norch.ones(2).device.type == norch.device(null_device()).type
        with norch.device("cpu"):
            assert norch.zeros(1).device.type == "cpu"
    assert norch.ones(1).device.type == "cpu"
    assert norch.device(type="cpu", index=0) is norch.device("cpu")


def test_accelerator():
    there = norch.accelerator.current_accelerator()
    assert norch.accelerator.is_available() == (there is not None)
    if there is None:
        assert norch.accelerator.device_count() == 0
        for needs_one in ("synchronize", "current_stream", "get_memory_info"):
            with pytest.raises(norch.DeviceError, match=rf"{needs_one}\(\): no device but the CPU"):
                getattr(norch.accelerator, needs_one)()
        assert norch.accelerator.memory_stats() == {}
    norch.accelerator.reset_peak_memory_stats()
    norch.accelerator.empty_cache()
    in_use, most = norch.accelerator.memory_allocated(), norch.accelerator.max_memory_allocated()
    taken, most_taken = norch.accelerator.memory_reserved(), norch.accelerator.max_memory_reserved()
    assert 0 <= in_use <= most <= most_taken
    assert in_use <= taken <= most_taken


def test_cuda_functions_that_scripts_call_without_a_gpu():
    norch.cuda.manual_seed_all(7)
    first = norch.rand(2)
    norch.manual_seed(7)
    assert norch.equal(norch.rand(2), first)
    norch.cuda.empty_cache()
    assert norch.cuda.OutOfMemoryError is norch.OutOfMemoryError
    assert issubclass(norch.cuda.amp.GradScaler, norch.amp.GradScaler)


def test_determinism_is_remembered():
    norch.use_deterministic_algorithms(True, warn_only=True)
    assert norch.are_deterministic_algorithms_enabled()
    assert norch.is_deterministic_algorithms_warn_only_enabled()
    assert norch.get_deterministic_debug_mode() == 1
    norch.set_deterministic_debug_mode("error")
    assert norch.get_deterministic_debug_mode() == 2
    norch.use_deterministic_algorithms(False)
    assert norch.get_deterministic_debug_mode() == 0


def test_compile_takes_what_pytorchs_takes():
    def double(x):
        return x * 2

    for compiled in (norch.compile(double, mode="max-autotune"), norch.compile(dynamic=True)(double)):
        assert [compiled(norch.full((2,), i)).tolist() for i in range(5)] == [[2 * i] * 2 for i in range(5)]
    assert norch.compile(double, disable=True) is double
    with pytest.raises(TypeError, match="optimise"):
        norch.compile(double, optimise=True)


def test_interop_threads():
    norch.set_num_interop_threads(3)
    assert norch.get_num_interop_threads() == 3
    with pytest.raises(ValueError, match="positive"):
        norch.set_num_interop_threads(0)


def test_subnormal_numbers_are_flushed_where_the_backend_can() -> None:
    try:
        can = norch.set_flush_denormal(True)
        products = norch.full((300_000,), 1e-40) * norch.ones(1)
    finally:
        norch.set_flush_denormal(False)
    assert (products == 0).all() == can  # of all threads
    assert (norch.full((3,), 1e-40) * norch.ones(1) > 0).all()


def test_variable():
    x = norch.ones(2)
    for wanted in (False, True):
        made = norch.autograd.Variable((x * 1).requires_grad_(not wanted) * 2, requires_grad=wanted)
        assert (made.requires_grad, made.is_leaf) == (wanted, True)
    assert norch.autograd.Variable(x).data_ptr() == x.data_ptr()
    assert isinstance(x, norch.autograd.Variable)
    assert not isinstance(1.0, norch.autograd.Variable)


def test_views_know_their_base():
    x = norch.ones(2, 3)
    assert x[0]._is_view()
    assert x[0]._base is x
    assert not x._is_view()
    assert x._base is None


def test_the_node_of_a_leaf_is_called_as_pytorchs():
    x = norch.ones(2, requires_grad=True)
    ((node, _), *_) = (x * 2).grad_fn.next_functions
    assert type(node).__name__ == "AccumulateGrad"
    assert node.variable is x


def test_anomaly_mode_names_the_op():
    x = norch.zeros(2, requires_grad=True)
    with norch.autograd.detect_anomaly():
        assert norch.is_anomaly_enabled()
        with pytest.raises(norch.AutogradError, match=r"sqrt gave NaN.*\(2,\)"):
            (x.sqrt() * 0).sum().backward()
    assert not norch.is_anomaly_enabled()
    with norch.autograd.set_detect_anomaly(True, check_nan=False):
        (x.sqrt() * 0).sum().backward()


def test_what_is_rare_is_not_loaded_at_import():
    code = (
        "import sys, norch; rare = [m for m in ('linalg', 'amp', 'backends', 'accelerator', 'autograd.functional', "
        "'compat.legacy', 'compat.compiling', 'compat.determinism') "
        "if 'norch.' + m in sys.modules]; print(rare)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


def test_types_by_old_names():
    x = norch.ones(2)
    assert x.type(norch.LongTensor).dtype is norch.int64
    assert x.type("torch.DoubleTensor").dtype is norch.float64
    assert norch.cuda.FloatTensor.device_type == "cuda"
    with pytest.raises(norch.DTypeError, match="no tensor type"):
        x.type("torch.NoTensor")


def test_special():
    x = norch.tensor([0.1, 0.5, 0.9], dtype=norch.float64)
    special = norch.special
    assert norch.equal(special.expit(x), norch.sigmoid(x))
    assert norch.allclose(special.ndtri(special.ndtr(x)), x)
    assert norch.allclose(special.ndtr(norch.tensor([-1.0, 0.0, 2.0])), norch.tensor([0.15865525, 0.5, 0.97724987]))
    assert special.entr(norch.tensor([0.0, 1.0, -1.0])).tolist() == [0, 0, -float("inf")]
    assert special.xlog1py(norch.tensor([0.0, 1.0]), norch.tensor([-1.0, 0.0])).tolist() == [0, 0]


def test_version():
    assert norch.version.__version__ == norch.__version__
    assert norch.version.cuda is None or norch.cuda.is_available()
    for module in (norch.mps, norch.xpu):
        assert module.is_available() in (True, False)


def test_multiples_beyond_a_narrow_dtype_wrap_around():
    a, b = norch.tensor([5, -5, 7, 0], dtype=norch.int8), norch.tensor([27, 27, 3, 0], dtype=norch.int8)
    assert norch.lcm(a, b).tolist() == [135 - 256, 135 - 256, 21, 0]
    assert norch.lcm(a.int(), b.int()).tolist() == [135, 135, 21, 0]


def test_a_tensor_of_a_tensor_is_a_view_of_it():
    x = norch.tensor([[1, 2], [3, 4]], dtype=norch.int64)
    for made in (norch.Tensor(x.t()), norch.LongTensor(x.t()), x.new(x.t())):
        assert (made.dtype, made.stride(), made.data_ptr()) == (norch.int64, (1, 2), x.data_ptr())
    norch.Tensor(x)[0, 0] = 7
    assert x.tolist() == [[7, 2], [3, 4]]

    class Kind(norch.Tensor):
        pass

    leaf = norch.ones(2, requires_grad=True)
    (Kind(leaf) * 3).sum().backward()
    assert leaf.grad.tolist() == [3, 3]
    assert norch.Tensor(leaf.detach(), dtype=norch.float64).dtype is norch.float64
    assert norch.FloatTensor(x).dtype is norch.float32


def test_sizes_are_numbers():
    assert (norch.sym_max(2, 3), norch.sym_min(2, 3.5), norch.sym_int(-2.7), norch.sym_float(2)) == (3, 2.0, -2, 2.0)
    assert type(norch.sym_min(2, 3.5)) is float
    assert (norch.sym_not(True), norch.sym_ite(True, 1, 2), norch.sym_sum([1, 2, 3]), norch.sym_sqrt(9)) == (0, 1, 6, 3)
    from norch.compat.symbolic_numbers import free_symbols, guard_or_false

    assert guard_or_false(3 > 2) is True
    assert free_symbols(norch.ones(2)) == set()


def test_sizes_leave_sums_with_other_classes_to_these():
    class Right:
        def __radd__(self, other):
            return ("right", other)

    assert norch.Size([1, 2]) + Right() == ("right", norch.Size([1, 2]))
    assert type(norch.Size([1]) + (2,)) is norch.Size
    with pytest.raises(TypeError):
        norch.Size([1]) + [2]


def test_dtypes_of_quantised_tensors_are_names():
    assert repr(norch.qint8).endswith(".qint8")
    assert pickle.loads(pickle.dumps(norch.quint4x2)) is norch.quint4x2
    assert (norch.qint32.itemsize, norch.quint8.is_signed, norch.qint8.is_floating_point) == (4, False, False)
    assert len({norch.qint8, norch.quint8, norch.int8}) == 3
    few = [getattr(norch, f"{kind}{bits}") for kind in ("int", "uint") for bits in range(1, 8)]
    assert len({*few, norch.int8, norch.uint8}) == 16
    assert [dtype.is_signed for dtype in few] == [True] * 7 + [False] * 7
    assert repr(norch.uint1).endswith(".uint1")


def test_classes_of_several_results():
    from norch.return_types import aminmax
    from norch.return_types import max as max_result

    x = norch.tensor([[3.0, 1.0]])
    for found in (x.max(1), x.sort(1), x.topk(1), x.cummax(1), x.mode(1), x.median(1), x.kthvalue(1)):
        assert isinstance(found, max_result)
    assert isinstance(x.aminmax(), aminmax)


def test_libraries_of_ops_cannot_be_loaded():
    with pytest.raises(OSError, match="no ops for norch in 'some.so'"):
        norch.ops.load_library("some.so")
    assert norch.ops.loaded_libraries == set()


def test_functions_of_devices():
    from norch._utils import _element_size, _get_available_device_type, _get_device_index

    assert norch.get_device_module("cpu") is norch.cpu
    assert norch.get_device_module() is norch.get_device_module(_get_available_device_type() or "cpu")
    assert (_get_device_index(1), _get_device_index("cpu", allow_cpu=True), _element_size(norch.int16)) == (1, -1, 2)
    with pytest.raises(ValueError, match="other than the CPU"):
        _get_device_index("cpu")
    with pytest.raises(norch.DeviceError):
        norch.get_device_module("nothing")


def test_functions_of_the_compiled_part():
    x = norch.ones(3)
    assert norch._C._is_alias_of(x[1:], x)
    assert not norch._C._is_alias_of(x, x.clone())
    assert norch._C._get_cudnn_enabled() is True
    assert norch._C._is_torch_function_mode_enabled() is False
    assert norch._guards.active_fake_mode() is None


def test_fill():
    x = norch.tensor([1.0, 2.0], requires_grad=True)
    filled = norch.fill(x, 3)
    assert (filled.tolist(), filled.requires_grad, x.tolist()) == ([3, 3], True, [1, 2])
    assert norch.autograd.grad(filled.sum(), x)[0].tolist() == [0, 0]
    value = norch.tensor(4.0, requires_grad=True)
    assert norch.autograd.grad(norch.fill(x, value).sum(), value)[0].item() == 2
    assert norch.fill(norch.ones(2, dtype=norch.int64), norch.tensor(4)).tolist() == [4, 4]
    with pytest.raises(norch.ShapeError, match="0-d tensor"):
        norch.fill(x, norch.ones(2))


def test_bases_of_context_managers():
    from norch.compat.context_managers import _DecoratorContextManager, _NoParamDecoratorContextManager

    class Within(_DecoratorContextManager):
        depth = 0

        def __enter__(self):
            Within.depth += 1

        def __exit__(self, *exception):
            Within.depth -= 1

    class Bare(Within, _NoParamDecoratorContextManager):
        pass

    @Within()
    def depth():
        return Within.depth

    @Bare
    def depths():
        yield Within.depth
        yield Within.depth

    running = depths()
    assert (depth(), next(running), Within.depth, next(running), Within.depth) == (1, 1, 0, 1, 0)


def test_dicts_of_weak_keys_known_by_identity():
    from norch.compat.weak_keys import TensorWeakRef, WeakIdKeyDictionary, WeakTensorKeyDictionary

    kept, lost = norch.ones(2), norch.ones(2)
    by_tensor = WeakTensorKeyDictionary({kept: 1, lost: 2})
    assert (by_tensor[kept], by_tensor[lost], len(by_tensor)) == (1, 2, 2)
    assert kept.clone() not in by_tensor
    weak = TensorWeakRef(lost)
    del lost
    assert (len(by_tensor), weak(), [k is kept for k in by_tensor]) == (1, None, [True])
    assert isinstance(by_tensor.copy(), WeakTensorKeyDictionary)
    other = WeakIdKeyDictionary()
    other[kept] = 3
    del other[kept]
    assert not other


def test_statistics_of_memory_where_there_is_no_gpu():
    """As PyTorch without CUDA: programs log them, and tables of functions by device name the others when imported."""
    if norch.cuda.is_available():
        pytest.skip("there is a GPU")
    kinds = ("allocated", "cached", "reserved")
    assert {getattr(norch.cuda, f"{most}memory_{kind}")() for most in ("", "max_") for kind in kinds} == {0}
    assert norch.cuda.max_memory_allocated(0) == 0
    assert (norch.cuda.memory_stats(), norch.cuda.get_arch_list(), norch.cuda.is_tf32_supported()) == ({}, [], False)
    assert norch.cuda.is_current_stream_capturing() is False
    assert norch.cuda.reset_max_memory_allocated is not None
    with pytest.raises(NotImplementedError, match=r"cuda\.reset_peak_memory_stats"):
        norch.cuda.reset_peak_memory_stats()


@pytest.mark.parametrize("name", ["MemPool", "use_mem_pool", "memory_snapshot", "_record_memory_history"])
def test_what_norch_lacks_of_a_gpus_memory_says_what_there_is(name):
    assert not hasattr(norch.cuda, "_not_there")
    with pytest.raises(norch.LackingError, match=rf"norch has no cuda\.{name}; .*(empty_cache|norch\.memory\.)"):
        getattr(norch.cuda.memory, name)()


def test_what_scripts_import_of_cuda_there_is_without_a_gpu():
    import norch.cuda.nccl as nccl
    from norch.cuda._utils import _get_device_index
    from norch.cuda.amp.common import amp_definitely_not_available

    assert norch.cuda.nccl.version == nccl.version
    assert not nccl.is_available([norch.ones(2)])
    assert _get_device_index("cpu", allow_cpu=True) == -1
    assert _get_device_index(3) == 3
    cuda = norch.backends.cuda
    assert cuda.preferred_blas_library("cublaslt") == "default"
    assert cuda.allow_fp16_bf16_reduction_math_sdp(True) is None
    assert not cuda.fp16_bf16_reduction_math_sdp_allowed()
    assert amp_definitely_not_available() != norch.cuda.is_available() == cuda.is_flash_attention_available()
    if norch.cuda.is_available():
        pytest.skip("there is a GPU")
    for call in (nccl.version, norch.cuda._lazy_init):
        with pytest.raises(norch.DeviceError, match="norch-cuda"):
            call()


def test_dtypes_of_autocast_by_device():
    before = norch.get_autocast_gpu_dtype(), norch.get_autocast_cpu_dtype()
    try:
        norch.set_autocast_gpu_dtype(norch.bfloat16)
        norch.set_autocast_cpu_dtype(norch.float16)
        assert norch.get_autocast_dtype("cuda") is norch.bfloat16
        assert norch.get_autocast_dtype("cpu") is norch.float16
    finally:
        norch.set_autocast_gpu_dtype(before[0])
        norch.set_autocast_cpu_dtype(before[1])


def test_what_pytorch_says_that_it_was_built_with():
    assert (norch.has_lapack, norch.has_spectral, norch.has_mkl) == (True, True, False)
    for name, answer in {
        "has_cuda": norch.backends.cuda.is_built(),
        "has_cudnn": norch.backends.cudnn.is_available(),
        "has_mkldnn": False,
        "has_mps": norch.backends.mps.is_built(),
    }.items():
        with pytest.warns(UserWarning, match=f"'{name}' is deprecated, please use 'torch.backends"):
            assert getattr(norch, name) is answer
    assert not hasattr(norch, "has_anything")
