"""Switches of the process and of backends, and the kernels that are compiled under them."""

from __future__ import annotations

import pytest

import norch
from norch import settings
from norch.backend import allows_tf32, get_switch
from norch.dispatch import plan
from norch.settings import set_switch


def test_switches_of_backends():
    backends = norch.backends
    for name, at_first in (("benchmark", False), ("deterministic", True), ("enabled", True)):
        assert getattr(backends.cudnn, name) is at_first
        setattr(backends.cudnn, name, not at_first)
        assert getattr(backends.cudnn, name) is norch.backend.get_switch(f"cudnn.{name}") is not at_first
        setattr(backends.cudnn, name, at_first)
    assert backends.cudnn.is_available() == (backends.cudnn.version() is not None)
    with pytest.raises(AttributeError, match="no switch 'benchmrk'"):
        backends.cudnn.benchmrk = True
    assert backends.mps.is_available() is False
    assert backends.cuda.is_built() == norch.cuda.is_available()
    plans = backends.cuda.cufft_plan_cache[0]
    plans.max_size = 10
    plans.clear()
    assert (plans.size, backends.cuda.cufft_plan_cache.max_size) == (0, 10)
    assert norch.backends.mkldnn.is_available() is False


def test_flags_of_cudnn_hold_within_the_block():
    cudnn = norch.backends.cudnn
    first = norch.backend.get_switch("cudnn.enabled", "not set")
    with pytest.raises(KeyError), cudnn.flags(enabled=False, benchmark=True, allow_tf32=True):
        assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32) == (False, True, False, True)
        raise KeyError
    assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32) == (True, False, True, False)
    assert norch.backend.get_switch("cudnn.enabled", "not set") == first
    with cudnn.flags(fp32_precision="tf32"), norch.backends.mkldnn.flags(enabled=False):
        assert tf32_of() == (False, True, True)
    assert tf32_of() == (False, False, False)
    assert cudnn.is_acceptable(norch.ones(2)) is False


def test_plans_are_kept_where_no_kernel_asks_for_a_switch(monkeypatch):
    monkeypatch.setattr(settings, "_asked", set())
    forgotten = []
    monkeypatch.setattr(settings, "_callbacks", [(lambda: forgotten.append(True), None)])
    with norch.backends.cudnn.flags(enabled=False):
        assert not forgotten
    norch.backend.get_switch("cudnn.enabled", True)
    with norch.backends.cudnn.flags(enabled=False):
        assert len(forgotten) == 1
    assert len(forgotten) == 2


def test_kernels_are_compiled_for_a_number_of_threads(monkeypatch):
    before = norch.get_num_threads()
    monkeypatch.setattr(settings, "_threads", None)
    states = []
    monkeypatch.setattr(settings, "_callbacks", [(lambda: None, lambda *state: states.append(state))])
    try:
        for count in (before + 1, before + 1, before + 2, before + 1):
            norch.set_num_threads(count)
    finally:
        norch.set_num_threads(before)
    (_, first), (second, other), (third, again) = states[:3]
    assert (first, other) == (second, third)
    assert first == again != other


@pytest.fixture
def ieee():
    yield
    norch.set_float32_matmul_precision("highest")
    norch.backends.cudnn.fp32_precision = "none"


def tf32_of():
    """Of products, convolutions and recurrent layers, as backends are told."""
    return tuple(map(allows_tf32, ("matmul", "conv", "rnn")))


def test_switches_of_tf32(ieee):
    backends = norch.backends
    assert tf32_of() == (False, False, False)
    backends.cudnn.allow_tf32 = True  # PyTorch's default, which says nothing of products
    assert tf32_of() == (False, True, True)
    assert backends.cudnn.allow_tf32
    assert not backends.cuda.matmul.allow_tf32
    backends.cudnn.fp32_precision = "none"
    backends.cuda.matmul.allow_tf32 = True
    assert norch.get_float32_matmul_precision() == "high"
    assert tf32_of() == (True, True, True)
    backends.cudnn.conv.fp32_precision = "ieee"
    assert tf32_of() == (True, False, True)
    assert (backends.cudnn.allow_tf32, backends.cudnn.rnn.fp32_precision) == (False, "tf32")
    norch.set_float32_matmul_precision("highest")
    assert backends.cuda.matmul.fp32_precision == "ieee"
    backends.fp32_precision = "tf32"
    assert tf32_of() == (True, True, True)
    backends.fp32_precision = "none"
    assert (tf32_of(), backends.fp32_precision) == ((False, False, False), "ieee")
    with pytest.raises(ValueError, match="fp32_precision: expected one of ieee, tf32, none, got 'fp8'"):
        backends.cudnn.fp32_precision = "fp8"
    with pytest.raises(AttributeError, match="no switch 'allow_tf23'"):
        backends.cuda.matmul.allow_tf23 = True


@pytest.mark.parametrize("name", ["allow_fp16_reduced_precision_reduction", "allow_fp16_accumulation"])
def test_switches_of_products_of_16_bit_floats(name):
    """norch-cuda's tests have what they do."""
    matmul = norch.backends.cuda.matmul
    assert getattr(matmul, name) is False
    try:
        setattr(matmul, name, True)
        assert getattr(matmul, name) is True
    finally:
        setattr(matmul, name, False)


def test_kernels_are_compiled_again_after_a_switch(ieee, monkeypatch):
    backend = norch.device("cpu").backend
    seen, compile_ = [], type(backend).compile

    def compile_noting(self, op, operands, attrs):
        if op in ("matmul", "conv2d"):
            seen.append((op, allows_tf32("conv" if op == "conv2d" else "matmul")))
        return compile_(self, op, operands, attrs)

    monkeypatch.setattr(type(backend), "compile", compile_noting)
    x, image = norch.ones(7, 7), norch.ones(1, 1, 7, 7)
    step = norch.capture(lambda a, b: (a @ a, norch.conv2d(b, b)))
    for precision in ("highest", "high"):
        norch.set_float32_matmul_precision(precision)
        seen.clear()
        for _ in range(4):
            step(x, image)
        assert {tf32 for _, tf32 in seen} == {precision == "high"}
    seen.clear()
    norch.backends.cudnn.allow_tf32 = False
    step(x, image)
    assert dict(seen) == {"matmul": True, "conv2d": False}


def test_kernels_are_compiled_once_for_each_state_of_switches(ieee, monkeypatch):
    """transformers switches cuDNN off around each ctc_loss, so that every step compiled all of its kernels twice."""
    backend, compiled = type(norch.device("cpu").backend), []
    compile_ = backend.compile

    def compile_noting(self, op, operands, attrs):
        compiled.append((op, get_switch("cudnn.enabled", True), norch.get_float32_matmul_precision()))
        return compile_(self, op, operands, attrs)

    monkeypatch.setattr(backend, "compile", compile_noting)
    plan.forget_plans()
    x = norch.ones(7, 7)

    def step():
        (x @ x).sum()
        with norch.backends.cudnn.flags(enabled=False):
            (x @ x).exp()
        norch.set_float32_matmul_precision("high")
        x @ x
        norch.set_float32_matmul_precision("highest")

    for _ in range(2):
        step()
    assert len([made for made in compiled if made[0] == "matmul"]) == 3
    compiled.clear()
    for _ in range(3):
        step()
    assert compiled == []
    norch.set_default_dtype(norch.float64)
    norch.set_default_dtype(norch.float32)
    step()
    assert [made for made in compiled if made[0] == "matmul"] == [
        ("matmul", True, "highest"),
        ("matmul", False, "highest"),
        ("matmul", True, "high"),
    ]


def test_plans_of_few_states_are_kept(ieee):
    x, caches = norch.ones(3), list(plan._caches)
    try:
        for value in range(9):
            set_switch("test.switch", value)
            get_switch("test.switch")
            x.exp()
        assert len(plan._kept) <= plan.MOST_KEPT
        assert max(len(plans.kept) for plans in caches) <= plan.MOST_KEPT
    finally:
        set_switch("test.switch", None)


@pytest.mark.parametrize(
    "context",
    [
        lambda: norch.backends.cuda.sdp_kernel(enable_flash=False),
        lambda: norch.backends.mkldnn.flags(enabled=False),
        lambda: norch.backends.cudnn.flags(enabled=False),
        lambda: norch.jit.optimized_execution(False),
        lambda: norch.jit.fuser("fuser1"),
    ],
)
def test_contexts_decorate_functions(context):
    @context()
    def twice(x):
        return 2 * x

    assert (twice(2), twice(3)) == (4, 6)
    with context():
        assert twice(4) == 8


def test_switches_can_be_set_at_any_time() -> None:
    assert norch.backends.flags_frozen() is False
