"""Ops that are Python functions: `norch.library`."""

from __future__ import annotations

import pytest

import norch
from norch import library


def test_a_decorated_function_is_an_op_by_name() -> None:
    @library.custom_op("tested::scaled", mutates_args=())
    def scaled(x: norch.Tensor, factor: float = 2.0) -> norch.Tensor:
        """x times factor."""
        return x * factor

    assert norch.ops.tested.scaled is scaled
    assert scaled.__doc__ == "x times factor."
    assert norch.ops.tested.scaled(norch.ones(2), factor=3.0).tolist() == [3, 3]
    assert scaled(norch.ones(2, requires_grad=True)).grad_fn.name() == "scaled_backward"


def test_gradients_by_name() -> None:
    library.custom_op("powers::cube", lambda x, k: k * x**3, schema="(Tensor x, int k) -> Tensor")
    library.register_fake("powers::cube", lambda x, k: norch.empty_like(x))
    library.register_autograd(
        "powers::cube",
        lambda ctx, g: (3 * ctx.k * ctx.saved_tensors[0] ** 2 * g, None),
        setup_context=lambda ctx, inputs, output: (ctx.save_for_backward(inputs[0]), setattr(ctx, "k", inputs[1])),
    )
    x = norch.tensor([2.0, 3.0], requires_grad=True)
    norch.ops.powers.cube(x, k=2).sum().backward()
    assert x.grad.tolist() == [24, 54]


def test_a_kernel_for_a_device() -> None:
    op = library.custom_op("places::where", lambda x: x, device_types="cuda")
    with pytest.raises(NotImplementedError, match="places::where: no kernel for device 'cpu'; register_kernel"):
        op(norch.ones(1))
    op.register_kernel("cpu")(lambda x: x + 1)
    assert op(norch.ones(1)).tolist() == [2]


def test_wrong_names() -> None:
    with pytest.raises(ValueError, match="expected 'namespace::name', got 'alone'"):
        library.custom_op("alone", lambda x: x)
    with pytest.raises(RuntimeError, match="there is no op 'nowhere::none'; custom_op makes one"):
        library.register_autograd("nowhere::none", lambda ctx, g: g)
    assert not hasattr(norch.ops, "nowhere")


def test_a_library_defines_and_implements() -> None:
    mine = library.Library("shop", "DEF")
    assert mine.define("weigh(Tensor x, float[] by=[1.0, 2.0], *, bool double=False) -> Tensor") == "weigh"
    with pytest.raises(NotImplementedError, match="shop::weigh: no kernel"):
        norch.ops.shop.weigh(norch.ones(2))
    mine.impl("weigh", lambda x, by, double=False: x * by[1] * (2 if double else 1), "CPU")
    mine.impl(norch.ops.shop.weigh.default, lambda x, by, double=False: x, "Meta")
    assert norch.ops.shop.weigh(norch.ones(2), double=True).tolist() == [4, 4]
    mine.define("twice(Tensor x) -> Tensor")
    mine.impl("twice", lambda x: x + x)
    x = norch.ones(2, requires_grad=True)
    norch.ops.shop.twice(x).sum().backward()
    assert x.grad.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="aten::add is an op of PyTorch"):
        library.Library("aten", "IMPL").impl("add", len)
    with pytest.raises(ValueError, match="expected 'name"):
        mine.define("nothing")
    with pytest.raises(ValueError, match="kind must be"):
        library.Library("shop", "ALL")


def test_define_and_impl_by_name() -> None:
    library.define("counts::third", "(Tensor x, int? n=None) -> Tensor")

    @library.impl("counts::third", "default")
    def third(x: norch.Tensor, n: int | None) -> norch.Tensor:
        return x / 3 if n is None else x / n

    assert norch.ops.counts.third(norch.ones(1) * 3, n=None).tolist() == [1]
    mine = library.Library("counts", "FRAGMENT")
    mine.define("fourth(Tensor x) -> Tensor")

    @library.impl(mine, "fourth", "CompositeExplicitAutograd")
    def fourth(x: norch.Tensor) -> norch.Tensor:
        return x / 4

    assert norch.ops.counts.fourth(norch.ones(1)).tolist() == [0.25]
    assert fourth(norch.ones(1)).tolist() == [0.25]


def test_lists_of_tensors_have_gradients() -> None:
    @library.custom_op("listed::total", mutates_args=())
    def total(x: norch.Tensor, others: list[norch.Tensor], times: int = 1) -> tuple[norch.Tensor, list[norch.Tensor]]:
        return x * times, [other * times for other in others]

    def save(ctx, inputs, output):
        ctx.times = inputs[2]
        assert ctx.needs_input_grad[:2] == (False, [True, False])
        assert isinstance(output[1], list)

    def backward(ctx, by_first, by_others):
        return by_first * ctx.times, [g * ctx.times for g in by_others]

    total.register_autograd(backward, setup_context=save)
    a, b = norch.ones(2, requires_grad=True), norch.ones(2)
    first, others = total(norch.ones(2), [a, b], 3)
    (first.sum() + 5 * others[0].sum()).backward()
    assert a.grad.tolist() == [15, 15]
    assert isinstance(others, list)


def test_without_a_formula_backward_raises() -> None:
    op = library.custom_op("bare::product", lambda x, y: x * y)
    x = norch.ones(2, requires_grad=True)
    assert not op(x.detach(), x.detach()).requires_grad
    with pytest.raises(RuntimeError, match="bare::product: there is no formula for its gradient; register_autograd"):
        (op(x, x) + x).sum().backward()


def test_kernels_of_a_library_are_differentiated_through() -> None:
    mine = library.Library("through", "DEF")
    mine.define("half(Tensor x) -> Tensor")
    mine.impl("half", lambda x: x / 2, "CPU")
    x = norch.ones(2, requires_grad=True)
    norch.ops.through.half(x).sum().backward()
    assert x.grad.tolist() == [0.5, 0.5]


def test_the_key_autograd_is_what_gives_gradients() -> None:
    mine = library.Library("keyed", "DEF")
    mine.define("power(Tensor x, int n) -> Tensor")
    mine.impl("power", lambda x, n: x**n, "CPU")

    class Power(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x, n):
            with norch._C._AutoDispatchBelowAutograd():
                return norch.ops.keyed.power(x, n)

        @staticmethod
        def backward(ctx, grad):
            return 10 * grad, None

    mine.impl("power", Power.apply, "Autograd")
    x = norch.ones(2, requires_grad=True)
    norch.ops.keyed.power(x, 2).sum().backward()
    assert x.grad.tolist() == [10, 10]


def test_fake_results_of_meta_tensors() -> None:
    @library.custom_op("faked::rows", mutates_args=())
    def rows(x: norch.Tensor, n: int) -> norch.Tensor:
        return norch.tensor(x.tolist() * n)

    rows.register_fake(lambda x, n: x.new_empty(x.shape[0] * n))
    assert rows(norch.empty(3, device="meta"), 4).shape == (12,)
    mine = library.Library("faked", "FRAGMENT")
    mine.define("columns(Tensor x) -> Tensor")
    mine.impl("columns", lambda x: x.new_empty(7), "Meta")
    assert norch.ops.faked.columns(norch.empty(3, device="meta")).shape == (7,)


def test_a_rule_for_vmap() -> None:
    @library.custom_op("mapped::scale", mutates_args=())
    def scale(x: norch.Tensor, by: list[norch.Tensor]) -> norch.Tensor:
        return norch.tensor((x.numpy() * by[0].numpy()).tolist())

    @scale.register_vmap
    def over(info, in_dims, x, by):
        assert (info.batch_size, in_dims) == (3, (0, [None]))
        return scale(x, by), 0

    assert norch.vmap(lambda x: scale(x, [norch.ones(2)]))(norch.ones(3, 2)).tolist() == [[1, 1]] * 3


def test_schemas_by_annotations() -> None:
    def function(
        x: norch.Tensor,
        others: list[norch.Tensor],
        kind: norch.dtype,
        name: str = "a",
        *,
        sizes: list[int] | None = None,
    ) -> tuple[norch.Tensor, int]: ...

    text = (
        '(Tensor(a0!) x, Tensor[] others, ScalarType kind, str name="a", *, SymInt[]? sizes=None) -> (Tensor, SymInt)'
    )
    assert library.infer_schema(function, mutates_args={"x"}) == text
    assert library.infer_schema(lambda: None, mutates_args=(), op_name="f") == "f() -> ()"
    with pytest.raises(ValueError, match="parameter x has no annotation"):
        library.infer_schema(lambda x: x, mutates_args=())
    with pytest.raises(ValueError, match="mutates_args names .'z'."):
        library.infer_schema(function, mutates_args="z")
    op = library.custom_op("schemas::f", function, mutates_args="x")
    assert str(op._schema) == "schemas::f" + text
    assert op.schema.is_mutable
    assert (op.default.name(), op.overloads()) == ("schemas::f", ["default"])


def test_what_an_op_writes_is_known_to_autograd() -> None:
    @library.custom_op("writes::one", mutates_args={"x"})
    def one(x: norch.Tensor) -> None:
        x.numpy()[:] = 1

    x = norch.ones(2, requires_grad=True)
    y = x * 2
    z = y * y
    one(y.detach())
    with pytest.raises(RuntimeError, match="writes::one has changed it in place"):
        z.sum().backward()


def test_autocast_casts_an_op_s_tensors() -> None:
    op = library.custom_op("cast::product", lambda x, y: x @ y)
    library.register_autocast("cast::product", "cpu", norch.bfloat16)
    x = norch.ones(2, 2)
    with norch.autocast("cpu"):
        assert op(x, x).dtype == norch.bfloat16
    assert op(x, x).dtype == norch.float32


def test_names_of_a_scoped_library_end_with_it() -> None:
    with library._scoped_library("scoped", "FRAGMENT") as mine:
        mine.define("f(Tensor x) -> Tensor")
        assert hasattr(norch.ops.scoped, "f")
    assert not hasattr(norch.ops.scoped, "f")


def test_opcheck() -> None:
    op = library.custom_op("checked::sine", lambda x: norch.tensor(x.numpy()).sin())
    op.register_fake(lambda x: norch.empty_like(x))
    op.register_autograd(lambda ctx, g: g)
    assert set(library.opcheck(op, (norch.ones(2, requires_grad=True),)).values()) == {"SUCCESS"}
    op.register_fake(lambda x: x.new_empty(1))
    assert "on the device 'meta'" in str(
        library.opcheck(op, (norch.ones(2),), raise_exception=False)["test_faketensor"]
    )
    liar = library.custom_op("checked::liar", lambda x: x.add_(1).clone())
    with pytest.raises(RuntimeError, match="test_schema of checked::liar failed: argument x has changed"):
        library.opcheck(liar, (norch.ones(2),))
    with pytest.raises(ValueError, match="test_utils has"):
        library.opcheck(op, (), test_utils="test_all")


def test_kernels_may_come_before_the_definition() -> None:
    @library.impl("early::half", ["CPU", "CUDA"])
    def half(x: norch.Tensor) -> norch.Tensor:
        return x / 2

    mine = library.Library("early", "FRAGMENT")
    mine.impl("third", lambda x: x / 3, "CPU")
    assert not hasattr(norch.ops, "early")
    library.define("early::half", "(Tensor x) -> Tensor")
    mine.define("third(Tensor x) -> Tensor")
    x = norch.ones(1)
    assert (norch.ops.early.half(x).item(), norch.ops.early.third(x * 3).item()) == (0.5, 1)


def test_a_kernel_that_is_to_be_compiled_gives_way_to_the_default() -> None:
    library.define("compiled::double", "(Tensor x) -> Tensor")
    norch.utils.cpp_extension = pytest.importorskip("norch.utils.cpp_extension")

    @library.impl("compiled::double", "CPU")
    def in_c(x: norch.Tensor) -> norch.Tensor:
        return norch.utils.cpp_extension.load("double", ["double.cpp"]).double(x)

    with pytest.raises(norch.LackingError, match="norch has no utils.cpp_extension.load"):
        norch.ops.compiled.double(norch.ones(1))
    library.impl("compiled::double", "default", lambda x: x * 2)
    assert norch.ops.compiled.double(norch.ones(1)).item() == 2


def test_overloads_have_names() -> None:
    """What `torch.ops.lib.f.out` is in PyTorch: one op under the name of another."""
    made = library.Library("overloads", "DEF")
    made.define("twice(Tensor x) -> Tensor")
    library.define("overloads::twice.out", "(Tensor x, Tensor(a!) out) -> ()")
    library.register_kernel("overloads::twice", "default", lambda x: x * 2)
    library.register_kernel("overloads::twice.out", "default", lambda x, out: out.copy_(x * 2) and None)
    library.register_fake("overloads::twice.out", lambda x, out: None)
    twice, out = norch.ops.overloads.twice, norch.zeros(1)
    assert (twice.default is twice, twice.overloads(), twice.out.overloads()) == (True, ["default", "out"], ["out"])
    assert (twice(norch.ones(1)).item(), twice.out(norch.ones(1), out), out.item()) == (2.0, None, 2.0)
    assert twice.out.schema.is_mutable
    assert not twice.schema.is_mutable
    assert (twice.out.name(), str(twice.out), str(twice)) == (
        "overloads::twice.out", "overloads.twice.out", "overloads.twice.default"
    )  # fmt: skip
    with pytest.raises(AttributeError, match="no attribute or overload 'other'"):
        _ = twice.other
    with pytest.raises(RuntimeError, match="there is no op 'overloads::twice.other'"):
        library.register_fake("overloads::twice.other", lambda x: x)
    made.define("lone.Scalar(Tensor x) -> Tensor")
    made.impl("lone", lambda x: x + 1, "CompositeExplicitAutograd")
    assert norch.ops.overloads.lone(norch.ones(1)).item() == norch.ops.overloads.lone.Scalar(norch.ones(1)).item() == 2
    made._destroy()
    assert not hasattr(norch.ops.overloads, "twice")


def test_arguments_are_bound_as_python_does() -> None:
    library.define("bound::f", "(Tensor x, int n, float f=2.0, *, str name='a', int? k=None) -> Tensor")
    seen: list[object] = []
    library.register_kernel("bound::f", "default", lambda x, n, f, *, name, k: seen.append((n, f, name, k)) or x + n)
    f, x = norch.ops.bound.f, norch.ones(1)
    for given in (f(x, 3), f(x, n=3), f(n=3, x=x), f(x, 3, 2.0, name="a"), f(x, 3, k=None)):
        assert given.item() == 4
    f(x, 1, f=0.5, k=2, name="b")
    assert seen == [(3, 2.0, "a", None)] * 5 + [(1, 0.5, "b", 2)]
    for args, kwargs, why in (
        ((x,), {}, "missing a required argument: 'n'"),
        ((x, 1), {"n": 2}, "multiple values for argument 'n'"),
        ((x, 1), {"other": 2}, "unexpected keyword argument 'other'"),
        ((x, 1, 2.0, "a"), {}, "too many positional arguments"),
    ):
        with pytest.raises(TypeError, match=f"bound::f: .*{why}"):
            f(*args, **kwargs)
