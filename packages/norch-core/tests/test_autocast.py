"""autocast: in which dtype ops run, what is cast and kept, where it holds, and that nothing of it is left behind."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from autocast_cases import PROMOTED_ELSEWHERE, cases

import norch
from norch.amp import autocast, custom_bwd, custom_fwd, hooks, keep_autocast, lists
from norch.amp.state import state
from norch.dispatch.plan import Plans
from norch.testing.strict import strict_device

BF16, FLOAT, HALF = norch.bfloat16, norch.float32, norch.float16


def result(expression: str, dtype: Any, device: str, lib: Any = norch, layers: Any = norch) -> Any:
    """The dtype of an expression of `autocast_cases`."""

    def on(*size: int) -> Any:
        return (lib.rand(*size) * 0.5 + 0.2).to(device)

    scope = {"x": lambda *size: on(*size).to(dtype), "full": on, "F": layers, "T": lib}
    if device != "cpu":
        placed = {name: lambda *a, make=name: getattr(norch, make)(*a).to(device) for name in ("zeros", "ones", "eye")}
        placed["tensor"] = lambda values: norch.tensor(values, device=device)
        scope["T"] = SimpleNamespace(**{**vars(norch), "linalg": norch.linalg, **placed})
    return eval(expression, scope).dtype


@pytest.mark.parametrize(("expression", "results"), cases())
def test_dtypes_on_the_cpu(expression: str, results: str) -> None:
    with norch.autocast("cpu"):
        found = [result(expression, dtype, "cpu") for dtype in (FLOAT, BF16)]
    assert found == [{"l": BF16, "f": FLOAT}[r] for r in results.split()[0]]


ELSEWHERE = [case for case in cases() if "inv" not in case[0] and "linalg.solve" not in case[0]]
"""Not those that take no 16 bits, which autocast helps on the CPU alone."""


@pytest.mark.parametrize(("expression", "results"), ELSEWHERE)
def test_dtypes_on_other_devices(expression: str, results: str) -> None:
    strict_device()
    with norch.autocast("strict"):
        found = [result(expression, dtype, "strict") for dtype in (FLOAT, HALF)]
    assert found == [{"l": HALF, "f": FLOAT}[r] for r in results.split()[1]]


@pytest.mark.parametrize("expression", [line.strip() for line in PROMOTED_ELSEWHERE.strip().splitlines()])
def test_operands_that_differ_promote_on_other_devices(expression: str) -> None:
    strict_device()
    with norch.autocast("strict"):
        assert result(expression, HALF, "strict") is FLOAT


def test_binary_cross_entropy_is_refused_where_float16_is_the_rule() -> None:
    strict_device()
    p = norch.full((2,), 0.5)
    with norch.autocast("strict"):
        assert norch.binary_cross_entropy(p, p).dtype is FLOAT  # on the CPU, for which it is not on
        p = p.to("strict")
        with pytest.raises(RuntimeError, match="unsafe to autocast.*binary_cross_entropy_with_logits"):
            norch.binary_cross_entropy(p, p)
    with norch.autocast("cpu"):
        half = norch.full((2,), 0.5, dtype=BF16)
        assert norch.binary_cross_entropy(half, half).dtype is FLOAT


def test_every_listed_function_can_be_hooked() -> None:
    for name, found in hooks.entries().items():
        there = hasattr(norch, name) or hasattr(norch.Tensor, name) or hasattr(norch.linalg, name)
        assert found or not there, name
    assert set(lists.CPU.values()) == {"lower", "float32", "promote"}
    assert set(lists.OTHERS.values()) == {"lower", "float32", "promote", "refuse"}


def test_values_are_those_of_a_cast() -> None:
    a, b = norch.rand(8, 8), norch.rand(8, 8)
    with norch.autocast("cpu"):
        found, wider = a @ b, norch.mse_loss(a.to(BF16), b.to(BF16))
    assert norch.equal(found, a.to(BF16) @ b.to(BF16))
    assert norch.equal(wider, norch.mse_loss(a.to(BF16).float(), b.to(BF16).float()))


def test_what_is_left_alone() -> None:
    a, b = norch.rand(4, 4), norch.rand(4, 4)
    wide, whole = a.double(), norch.arange(16).reshape(4, 4)
    with norch.autocast("cpu"):
        assert (wide @ wide).dtype is norch.float64
        assert (whole @ whole).dtype is norch.int64
        assert norch.softmax(a, 0, dtype=norch.float64).dtype is norch.float64
        assert norch.ones(2).dtype is FLOAT
        assert a.clone().addmm_(a, b).dtype is FLOAT
    strict_device()
    with norch.autocast("strict"):
        assert (a @ b).dtype is FLOAT
        half = norch.rand(4, dtype=HALF, device="strict")
        assert norch.sum(half, dtype=HALF).dtype is HALF
        assert norch.softmax(half, 0, HALF).dtype is HALF
        # What norch computes itself is not cast: the variance sums and squares.
        assert half.var().dtype is HALF


def test_regions_nest_and_end() -> None:
    a = norch.rand(4, 4)
    assert not norch.is_autocast_enabled("cpu")
    with norch.autocast("cpu"):
        assert norch.is_autocast_enabled("cpu")
        assert not norch.is_autocast_enabled("cuda")
        with norch.autocast("cpu", enabled=False):
            assert not norch.is_autocast_enabled("cpu")
            assert (a @ a).dtype is FLOAT
            with norch.autocast("cpu", dtype=HALF):
                assert (a @ a).dtype is HALF
                assert norch.get_autocast_dtype("cpu") is HALF
        assert (a @ a).dtype is BF16
    assert (a @ a).dtype is FLOAT
    with pytest.raises(KeyError), norch.autocast("cpu"), norch.autocast("cpu", enabled=False):
        raise KeyError
    assert not norch.is_autocast_enabled("cpu")
    assert norch.get_autocast_dtype("cpu") is BF16


def test_nothing_is_hooked_outside_of_a_region() -> None:
    op = norch.matmul.op
    assert type(op.plans) is Plans
    inner = norch.linear.__closure__
    before = [cell.cell_contents for cell in inner]
    with norch.autocast("cpu"):
        assert type(op.plans) is hooks.AutocastPlans
        assert [cell.cell_contents for cell in inner] != before
        with norch.autocast("cpu", enabled=False):
            assert type(op.plans) is Plans
    assert type(op.plans) is Plans
    assert [cell.cell_contents for cell in inner] == before


def test_as_a_decorator() -> None:
    a = norch.rand(4, 4)

    @norch.autocast("cpu")
    def product(depth: int) -> Any:
        """Documented."""
        return product(depth - 1) if depth else a @ a

    assert product(3).dtype is BF16
    assert product.__doc__ == "Documented."
    assert (a @ a).dtype is FLOAT
    with pytest.raises(TypeError, match="callable"):
        norch.autocast("cpu")(3)  # type: ignore[arg-type]


def test_of_each_thread() -> None:
    a, found = norch.rand(4, 4), []

    def work() -> None:
        found.append((a @ a).dtype)
        with norch.autocast("cpu", dtype=HALF):
            ready.set()
            done.wait()
            found.append((a @ a).dtype)

    ready, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=work)
    with norch.autocast("cpu"):
        thread.start()
        ready.wait()
        assert (a @ a).dtype is BF16
    assert (a @ a).dtype is FLOAT  # while the other is still in its region
    done.set()
    thread.join()
    assert found == [FLOAT, HALF]
    assert type(norch.matmul.op.plans) is Plans


def test_gradients_reach_the_float32_leaves() -> None:
    weight, x = norch.rand(4, 4, requires_grad=True), norch.rand(3, 4)
    with norch.autocast("cpu"):
        out = norch.linear(x, weight)
        loss = norch.mse_loss(out, norch.zeros(3, 4))
    assert (out.dtype, loss.dtype) == (BF16, FLOAT)
    loss.backward()
    short = weight.detach().to(BF16).requires_grad_()
    norch.mse_loss(norch.linear(x.to(BF16), short).float(), norch.zeros(3, 4)).backward()
    assert weight.grad.dtype is FLOAT
    assert norch.equal(weight.grad, short.grad.float())


def test_backward_inside_a_region_runs_as_outside() -> None:
    weight, x = norch.rand(4, 4, requires_grad=True), norch.rand(3, 4)
    grads = []
    for inside in (False, True):
        with norch.autocast("cpu"):
            loss = (norch.linear(x, weight).exp() ** 2).sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        grads.append(weight.grad)
        weight.grad = None
    assert norch.equal(*grads)


@pytest.fixture
def casts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of float32 tensors of 4 rows that were cast."""
    made: list[int] = []
    original = norch.Tensor.to

    def to(self: Any, *args: Any) -> Any:
        made.append(id(self))
        return original(self, *args)

    monkeypatch.setattr(norch.Tensor, "to", to)
    return made


def test_weights_are_cast_once_a_region(casts: list[int]) -> None:
    weight, x = norch.rand(4, 4, requires_grad=True), norch.rand(4, 4)
    with norch.autocast("cpu"):
        for _ in range(3):
            _ = x @ weight
            with norch.autocast("cpu"):
                _ = x @ weight
        assert casts.count(id(weight)) == 1
        assert casts.count(id(x)) == 6
        with norch.no_grad():
            weight.mul_(2)
            assert norch.equal(x @ weight, x.to(BF16) @ weight.detach().to(BF16))
        found = x @ weight
        assert found.requires_grad  # and not the cast that was made without recording
    assert casts.count(id(weight)) == 3
    assert state.cache is None
    casts.clear()
    with norch.autocast("cpu", cache_enabled=False):
        assert not norch.is_autocast_cache_enabled()
        for _ in range(3):
            _ = x @ weight
    assert casts.count(id(weight)) == 3
    assert norch.is_autocast_cache_enabled()


def test_a_cast_may_be_in_two_graphs() -> None:
    weight, x = norch.rand(4, 4, requires_grad=True), norch.rand(4, 4)
    with norch.autocast("cpu"):
        first, second = (x @ weight).sum(), (x @ weight).mean()
        first.backward()
        alone = weight.grad.clone()
        second.backward()
        assert norch.allclose(weight.grad, alone * (1 + 1 / 16), rtol=1e-2)
        norch.clear_autocast_cache()
        assert state.cache is None


def test_custom_functions() -> None:
    seen: list[Any] = []

    class Product(norch.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu")
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(norch.is_autocast_enabled("cpu"))
            a, b = ctx.saved_tensors
            return g @ b.mT, a.mT @ g

    class InFull(norch.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu", cast_inputs=FLOAT)
        def forward(ctx: Any, a: Any) -> Any:
            seen.append((a.dtype, norch.is_autocast_enabled("cpu")))
            return a @ a

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(norch.is_autocast_enabled("cpu"))
            return g

    a = norch.rand(4, 4, requires_grad=True)
    with norch.autocast("cpu"):
        out = Product.apply(a, a)
    assert out.dtype is BF16
    out.sum().backward()
    assert seen == [True]
    assert a.grad.dtype is FLOAT
    seen.clear()
    with norch.autocast("cpu"):
        out = InFull.apply(norch.rand(4, 4, dtype=BF16, requires_grad=True))
        assert out.dtype is FLOAT
        out.sum().backward()
    assert seen == [(FLOAT, False), False]
    seen.clear()
    assert InFull.apply(norch.rand(4, 4, dtype=BF16)).dtype is BF16
    with pytest.raises(ValueError, match="device_type"):
        custom_fwd(lambda ctx: None, device_type=3)  # type: ignore[arg-type]


def test_under_the_transforms_of_func() -> None:
    a, b = norch.rand(4, 4), norch.rand(3, 4, 4)
    with norch.autocast("cpu"):
        grad = norch.func.grad(lambda w: (w @ a).float().sum())(a)
        mapped = norch.func.vmap(lambda s: s @ a)(b)
        losses = norch.func.vmap(lambda s: norch.mse_loss(s.to(BF16), a))(b)
    assert (grad.dtype, mapped.dtype, losses.dtype) == (FLOAT, BF16, FLOAT)
    assert norch.equal(mapped, b.to(BF16) @ a.to(BF16))


def test_kept_for_later() -> None:
    a = norch.rand(4, 4)
    with norch.autocast("cpu", dtype=HALF):
        kept = keep_autocast()
    with norch.autocast("cpu"), kept:
        assert (a @ a).dtype is HALF
    assert (a @ a).dtype is FLOAT


def test_functions_that_switch_it() -> None:
    a = norch.rand(4, 4)
    try:
        norch.set_autocast_enabled("cpu", True)
        assert norch.is_autocast_cpu_enabled()
        assert (a @ a).dtype is BF16
        norch.set_autocast_dtype("cpu", HALF)
        assert (a @ a).dtype is norch.get_autocast_cpu_dtype() is HALF
    finally:
        norch.set_autocast_dtype("cpu", BF16)
        norch.set_autocast_enabled("cpu", False)
    assert (a @ a).dtype is FLOAT
    assert norch.get_autocast_gpu_dtype() is HALF
    for wrong in (lambda: norch.set_autocast_enabled("x"), lambda: norch.set_autocast_enabled("cpu", "x"),
                  lambda: norch.set_autocast_dtype("cpu", "x")):  # fmt: skip
        with pytest.raises(norch.DTypeError):
            wrong()
    assert not norch.is_autocast_enabled("cpu")
    norch.set_autocast_cache_enabled(False)
    assert not norch.is_autocast_cache_enabled()
    norch.set_autocast_cache_enabled(True)


def test_device_types_and_dtypes() -> None:
    assert norch.amp.is_autocast_available("cpu")
    assert norch.amp.is_autocast_available("cuda")
    assert not norch.amp.is_autocast_available("nothing")
    with pytest.raises(RuntimeError, match="unsupported device type 'nothing'"):
        norch.autocast("nothing")
    with pytest.raises(ValueError, match="must be a string"):
        norch.autocast(norch.device("cpu"))  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="only bfloat16 and float16"):
        region = norch.autocast("cpu", dtype=FLOAT)
    a = norch.rand(2, 2)
    with region:
        assert not norch.is_autocast_enabled("cpu")
        assert (a @ a).dtype is FLOAT
    if not norch.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"):
            region = norch.cuda.amp.autocast()
        with region:
            assert not norch.is_autocast_enabled()
    assert norch.autocast("cuda", enabled=False).fast_dtype is HALF
    strict_device()
    assert norch.get_autocast_dtype("strict") is HALF


def test_the_names_of_pytorch() -> None:
    import norch.cpu.amp
    from norch.amp.autocast_mode import autocast as same
    from norch.cuda.amp.autocast_mode import autocast as of_cuda

    assert norch.amp.autocast is norch.autocast is same is autocast
    assert of_cuda is norch.cuda.amp.autocast
    assert issubclass(of_cuda, autocast)
    with norch.cpu.amp.autocast(True, HALF):
        assert (norch.ones(2, 2) @ norch.ones(2, 2)).dtype is HALF
    assert norch.cpu.amp.GradScaler(8.0).get_scale() == 8.0

    @norch.cuda.amp.custom_fwd(cast_inputs=FLOAT)
    def forward(ctx: Any, value: Any) -> Any:
        return value

    assert forward(SimpleNamespace(), 3) == 3
    assert norch.cuda.amp.custom_bwd(forward).__name__ == "forward"


@pytest.mark.parametrize(("expression", "results"), cases())
def test_dtypes_beside_pytorch(expression: str, results: str) -> None:
    torch = pytest.importorskip("torch")
    for ours, theirs in ((FLOAT, torch.float32), (BF16, torch.bfloat16)):
        with torch.autocast("cpu"):
            expected = result(expression, theirs, "cpu", torch, torch.nn.functional)
        with norch.autocast("cpu"):
            assert str(result(expression, ours, "cpu")).endswith(str(expected).removeprefix("torch."))


@pytest.mark.parametrize("name", ["mm", "matmul", "bmm", "addmm"])
def test_results_written_by_out_are_not_cast(name: str) -> None:
    x = norch.full((1, 3, 3) if name == "bmm" else (3, 3), 1.001)
    given = (x,) * (3 if name == "addmm" else 2)
    expected, out = getattr(norch, name)(*given), norch.empty_like(x)
    with norch.autocast("cpu", dtype=norch.bfloat16):
        assert getattr(norch, name)(*given, out=out) is out
        assert getattr(norch, name)(*given).dtype is norch.bfloat16
    assert out.tolist() == expected.tolist()
