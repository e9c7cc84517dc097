"""Dispatch: what is compiled when, what a kernel is given, and what a user sees when a backend fails."""

import numpy as np
import pytest

import norch
from norch.backend import IndexOutOfBounds, get_float32_matmul_precision, registry
from norch.dispatch import fallback, plan
from norch.dispatch.plan import PLAN_LIMIT
from norch.numpy_backend.backend import NumpyBackend
from norch.ops.elementwise.arithmetic import exp, mul


class Chip(NumpyBackend):
    """The reference under another device type, with its host memory hidden, which notes what it is asked to compile."""

    device_type = "chip"
    lacks: frozenset[str] = frozenset()
    natives: dict = {}

    def __init__(self):
        self.compiled = []
        self.calls = []

    def host_view(self, buffer):
        return None

    def from_host(self, data):
        return None

    def compile(self, op, operands, attrs):
        self.compiled.append((op, operands, dict(attrs)))
        if op in self.lacks:
            return None
        kernel = self.natives[op] if op in self.natives else super().compile(op, operands, attrs)
        if kernel is None:
            return None

        def noted(*args):
            self.calls.append((op, args))
            kernel(*args)

        return noted

    def count(self, op):
        return sum(name == op for name, *_ in self.compiled)


@pytest.fixture
def chip():
    backend = Chip()
    registry.register(backend, "norch-chip", "0.3")
    yield backend
    registry.unregister("chip")
    norch.set_cpu_fallback(False)
    fallback.counts.clear()


def on_chip(values, **kwargs):
    return norch.tensor(values, device="chip", **kwargs)


def test_a_plan_is_made_once_for_equal_specs(chip):
    a, b = on_chip([1.0, 2.0]), on_chip([3.0, 4.0])
    for _ in range(3):
        assert (a + b).tolist() == [4.0, 6.0]
    assert chip.count("add") == 1
    assert (a[:1] + b[1:]).tolist() == [5.0]
    assert (a[1:] + b[:1]).tolist() == [5.0]  # an offset is no part of the key
    assert chip.count("add") == 2


def test_scalars_go_by_value(chip):
    a = on_chip([1.0, 2.0])
    results = [(a * s).tolist() for s in (0.5, 0.7, 2.5)]
    np.testing.assert_allclose(results, [[0.5, 1.0], [0.7, 1.4], [2.5, 5.0]], rtol=1e-6)
    assert chip.count("mul") == 1
    assert chip.calls[-1][1][-1] == 2.5


def test_operands_reach_the_backend_broadcast_promoted_and_outputs_first(chip):
    on_chip([[1.0], [2.0]]) + on_chip([1, 2, 3])
    op, (out, a, b), attrs = next(c for c in chip.compiled if c[0] == "add")
    assert [o.dtype for o in (out, a, b)] == [norch.float32] * 3
    assert [o.shape for o in (out, a, b)] == [(2, 3)] * 3
    assert (out.strides, a.strides, b.strides) == ((3, 1), (1, 0), (0, 1))
    assert attrs == {}


def test_reductions_keep_their_dims_for_the_kernel(chip):
    assert on_chip([[1.0, 2.0], [3.0, 4.0]]).sum(1).tolist() == [3.0, 7.0]
    _, (out, x), attrs = next(c for c in chip.compiled if c[0] == "sum")
    assert (out.shape, x.shape, attrs) == ((2, 1), (2, 2), {"dims": (1,)})


def test_no_kernel_runs_for_no_elements(chip):
    assert (on_chip([]) + 1).shape == (0,)
    assert not [c for c in chip.calls if c[0] == "add"]


def test_the_plan_cache_is_bounded():
    for n in range(PLAN_LIMIT + 50):
        mul(norch.empty(0, n % 7, 2), norch.empty(0, n % 7, 2))
        norch.narrow(norch.zeros(1), 0, 0, 0).expand(n, 0)
    from norch.ops.shape.views import EXPAND

    assert len(EXPAND.plans) <= PLAN_LIMIT
    assert len(EXPAND.plans.old) <= PLAN_LIMIT


def test_all_plan_caches_together_are_bounded(monkeypatch):
    monkeypatch.setattr(plan, "PLAN_LIMIT", 100)
    plan.forget_plans()
    often = norch.ones(3)
    for n in range(1, 300):
        x = norch.ones(n, 2)
        (x.exp() + x).sum(0).reshape(2, 1).add_(often[0])
        count = sum(len(cache) + len(cache.old) for cache in plan._caches)
        assert count <= 202
    made = plan.Plans.young
    often[0]
    assert plan.Plans.young == made  # it was kept


def test_what_is_still_used_survives_in_the_plan_cache():
    x = norch.zeros(2, 3)
    plan = exp.op.plans[x.spec]
    exp.op.plans.old = {x.spec: exp.op.plans.pop(x.spec)}
    assert exp.op.plans[x.spec] is plan
    assert x.spec not in exp.op.plans.old


def test_the_default_dtype_is_part_of_what_plans_know():
    x = norch.tensor([1, 2])
    assert (x * 0.5).dtype is norch.float32
    norch.set_default_dtype(norch.float64)
    try:
        assert (x * 0.5).dtype is norch.float64
    finally:
        norch.set_default_dtype(norch.float32)
    assert (x * 0.5).dtype is norch.float32


def test_kernels_are_compiled_anew_for_another_matmul_precision(chip, monkeypatch):
    a = on_chip([[1.0, 2.0], [3.0, 4.0]])
    seen, compile = [], chip.compile

    def noting(op, operands, attrs):
        if op == "matmul":
            seen.append(get_float32_matmul_precision())
        return compile(op, operands, attrs)

    monkeypatch.setattr(chip, "compile", noting)
    try:
        a @ a
        norch.set_float32_matmul_precision("high")
        a @ a
        a @ a
    finally:
        norch.set_float32_matmul_precision("highest")
    assert seen == ["highest", "high"]
    with pytest.raises(ValueError, match="highest, high, medium, got 'low'"):
        norch.set_float32_matmul_precision("low")


def test_a_missing_kernel_is_an_error_that_offers_the_fallback(chip):
    chip.lacks = frozenset({"exp"})
    with pytest.raises(norch.BackendError, match=r"norch-chip 0\.3 has no kernel exp.*set_cpu_fallback"):
        on_chip([0.0]).exp()


def test_the_fallback_runs_on_the_cpu_and_counts_bytes(chip):
    chip.lacks = frozenset({"exp"})
    norch.set_cpu_fallback(True)
    x = on_chip([[0.0, 1.0], [2.0, 3.0]])
    for _ in range(2):
        np.testing.assert_allclose(x.t()[1].exp().cpu().numpy(), np.exp([1.0, 3.0]), rtol=1e-6)
    count = fallback.counts["exp", "chip"]
    # Fetched: 2 floats of the output and the 3 that the strided input spans; sent back: 2.
    assert (count.calls, count.bytes_moved) == (2, 2 * (2 + 3 + 2) * 4)


def test_a_native_composite_records_itself(chip):
    def native(out, out_at, x, x_at):
        source = np.frombuffer(x.data, np.float32)[x_at : x_at + 4]
        np.frombuffer(out.data, np.float32)[out_at : out_at + 4] = np.maximum(source, 0)

    chip.natives = {"relu": native}
    x = on_chip([-1.0, 2.0, -3.0, 4.0], requires_grad=True)
    y = norch.relu(x)
    assert y.tolist() == [0.0, 2.0, 0.0, 4.0]
    assert y.grad_fn.name() == "relu_backward"
    assert not chip.count("maximum")
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0, 1.0]


def test_a_decomposed_composite_records_itself_too(chip):
    x = on_chip([-1.0, 2.0], requires_grad=True)
    y = norch.relu(x)
    assert chip.count("maximum") == 1
    assert y.grad_fn.name() == "relu_backward"
    assert [f for f, _ in y.grad_fn.next_functions] == [x.node]


def test_running_out_of_memory(chip):
    x = on_chip([1.0])
    chip.allocate = lambda nbytes, index: (_ for _ in ()).throw(MemoryError("full"))
    registry.unregister("chip")
    registry.register(chip, "norch-chip", "0.3")
    with pytest.raises(norch.OutOfMemoryError, match="full"):
        x + x
    with pytest.raises(norch.OutOfMemoryError, match="full"):
        norch.zeros(3, device="chip")
    del chip.allocate
    registry.unregister("chip")
    registry.register(chip, "norch-chip", "0.3")
    assert (x + x).tolist() == [2.0]


def test_an_impossible_size_on_the_cpu():
    with pytest.raises(norch.OutOfMemoryError):
        norch.empty(2**50)
    with pytest.raises(norch.ShapeError, match="more elements than memory"):
        norch.empty(2**40, 2**40)


def test_strides_that_no_backend_can_hold():
    for call in (lambda: norch.zeros(1).unfold(0, 1, 2**64).fill_(0), lambda: norch.zeros(0, 2**62, 2**62)):
        with pytest.raises(norch.ShapeError, match="more than 2\\*\\*63"):
            call()
    assert norch.zeros(1).unfold(0, 1, 2**40).fill_(1).tolist() == [[1]]


def test_an_index_out_of_bounds_names_op_index_and_size(chip):
    def kernel(*args):
        raise IndexOutOfBounds(7, 3)

    chip.natives = {"gather": kernel}
    with pytest.raises(norch.IndexError, match=r"gather\(\): index 7 .* size 3"):
        on_chip([1.0, 2.0, 3.0]).gather(0, on_chip([7]))


def test_operands_on_two_devices(chip):
    with pytest.raises(norch.DeviceError, match=r"add\(\): .*chip:0.*cpu"):
        on_chip([1.0, 2.0]) + norch.ones(2)
    assert (on_chip([1.0, 2.0]) + norch.tensor(3.0)).tolist() == [4.0, 5.0]  # a 0-d tensor on the CPU is a number


def test_gradients_cross_devices(chip):
    x = norch.tensor([1.0, 2.0], requires_grad=True)
    (x.to("chip") * on_chip([3.0, 4.0])).sum().backward()
    assert x.grad.device.type == "cpu"
    assert x.grad.tolist() == [3.0, 4.0]


def test_kernels_are_called_with_buffers_offsets_and_scalars(chip):
    x = on_chip([1.0, 2.0, 3.0])
    x[1:] * 2.0
    op, args = chip.calls[-1]
    out, out_at, a, a_at, scalar = args
    assert (op, out_at, a, a_at, scalar) == ("mul", 0, x.buffer, 1, 2.0)
    assert out.nbytes == 8


def test_integer_scalars_must_fit(device):
    x = norch.tensor([5], dtype=norch.uint8, device=device)
    assert (x + -1).tolist() == [4]
    assert (x - -3).tolist() == [8]
    assert (x * -1).tolist() == [251]
    assert norch.full((1,), -1, dtype=norch.uint8, device=device).tolist() == [255]
    for call in (lambda: x + 300, lambda: x + -300, lambda: x.char() + 128, lambda: x.char() + -129):
        with pytest.raises(norch.DTypeError, match=r"add\(\): -?\d+ is out of range for norch.u?int8"):
            call()


def test_a_composite_in_another_layout_than_it_promised_is_put_right():
    from norch.dispatch.op import Op
    from norch.dispatch.plan import Inferred

    def infer(x):
        return Inferred((x.like(),), (x,))

    op = Op("odd", ("x",), 1, infer, lambda g, y: g * y, kind="composite", decompose=lambda x: x.exp())
    x = norch.tensor([[0.0, 1.0], [2.0, 3.0]], requires_grad=True)
    from norch.dispatch.call import run

    run(op, x.t()).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), x.detach().exp().numpy(), rtol=1e-6)


def test_a_native_composite_without_a_rule_is_differentiated_through_its_parts(chip):
    from norch.dispatch.call import run
    from norch.dispatch.op import Op
    from norch.dispatch.plan import Inferred

    op = Op("twice", ("x",), 1, lambda x: Inferred((x,), (x,)), kind="composite", decompose=lambda x: x + x)
    chip.natives = {"twice": lambda out, out_at, x, x_at: None}
    x = on_chip([1.0, 2.0], requires_grad=True)
    run(op, x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    with norch.no_grad():
        run(op, x)
    assert chip.calls[-1][0] == "twice"
    for call in (op.call, lambda x: run(op, x)):
        chip.calls.clear()
        call(on_chip([1.0, 2.0]))  # nothing is to be differentiated
        assert [name for name, *_ in chip.calls] == ["twice"]
        base = on_chip([0.0, 1.0, 2.0])
        view = base[1:]
        chip.calls.clear()
        call(view)  # nor here
        assert [name for name, *_ in chip.calls] == ["twice"]
        scale = on_chip(3.0, requires_grad=True)
        base.mul_(scale)
        call(view).sum().backward()  # but now
        assert scale.grad.item() == 6.0


def test_seeds_of_64_bits():
    for seed in (-1, 2**63, 2**64 - 1):
        norch.manual_seed(seed)
        first = norch.rand(3).tolist()
        norch.manual_seed(seed)
        assert norch.rand(3).tolist() == first


@pytest.mark.parametrize("op", ["gt", "eq", "maximum", "floor_divide"])
def test_a_scalar_that_a_dtype_cannot_hold_is_not_wrapped_where_that_would_lie(op):
    with pytest.raises(norch.DTypeError, match="-1 is out of range"):
        getattr(norch, op)(norch.tensor([1, 2], dtype=norch.uint8), -1)


def test_a_copy_to_host_memory_may_come_later(chip, monkeypatch):
    later = []

    def copy_out_later(buffer, offset, data):
        later.append(lambda: chip.copy_out(buffer, offset, data))

    monkeypatch.setattr(chip, "copy_out_later", copy_out_later)
    x, out = on_chip([1.0, 2.0, 3.0]), norch.zeros(4)
    assert out[1:3].copy_(x[1:], non_blocking=True).tolist() == [0, 0]
    later.pop()()
    assert out.tolist() == [0, 2, 3, 0]
    assert out[::2].copy_(x[1:], non_blocking=True).tolist() == [2, 3], "a copy that is not plain waits"
    assert out[::2].copy_(x[::2], non_blocking=True).tolist() == [1, 3], "of the same strides"
    assert norch.zeros(3, dtype=norch.int64).copy_(x, non_blocking=True).tolist() == [1, 2, 3]
    assert not later
    saved = norch.ones(3, requires_grad=True)
    result = saved.exp()
    result.detach().copy_(x, non_blocking=True)
    with pytest.raises(norch.AutogradError):
        result.sum().backward()


def test_an_op_of_several_dtypes_is_asked_for_as_one_kernel(chip, monkeypatch):
    """Where a backend compiles "fused" at any time; with conversions before where it answers None."""
    monkeypatch.setattr(chip, "kept", frozenset({"fused"}), raising=False)
    a, b, number = on_chip([1.5, 2.0]), on_chip([2.0, 3.0]).to(norch.float16), on_chip(3).to(norch.int64)
    assert (a * b).tolist() == [3.0, 6.0]
    assert [op for op, *_ in chip.compiled if op in ("fused", "mul")] == ["fused", "mul"]
    op, operands, attrs = next(found for found in chip.compiled if found[0] == "fused")
    assert [o.dtype.name for o in operands] == ["float32", "float32", "float16"]
    assert attrs == {"steps": "copy float32 o2;mul float32 o1 s0", "results": (1,)}

    def multiplied(out, at, x, x_at, y, y_at):
        def seen(buffer, dtype, at):
            return buffer.data.view(dtype)[at : at + 2]

        seen(out, np.float32, at)[:] = seen(x, np.float32, x_at) * seen(y, np.float16, y_at) - 0.5

    monkeypatch.setattr(chip, "natives", {"fused": multiplied})
    norch.dispatch.plan.forget_plans()
    assert (a * b).tolist() == [2.5, 5.5]
    a *= b
    assert a.tolist() == [2.5, 5.5]
    chip.compiled.clear()
    assert (a * number).tolist() == [7.5, 16.5]  # one element is converted before
    assert (a * b.float()).tolist() == [5.0, 16.5]
    assert "fused" not in {op for op, *_ in chip.compiled}


def test_gradients_that_cross_devices_add_up(chip):
    x = norch.ones(3, requires_grad=True)
    for count in (1, 2, 3):
        (x.to("chip") * 2).sum().backward()
        assert x.grad.tolist() == [2.0 * count] * 3
    y = on_chip([1.0, 2.0], requires_grad=True)
    (y * y).sum().backward()
    y.cpu().sum().backward()
    assert y.grad.tolist() == [3.0, 5.0]
