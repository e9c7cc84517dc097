"""The device "meta": every op gives there the shape, strides and dtype that it gives on the CPU, and reads nothing."""

import copy
import pickle

import numpy as np
import pytest

import norch
from norch.testing.samples import LAYOUTS, SAMPLES, build
from norch.testing.samples.record import flat

READS_VALUES = {
    "allclose", "argwhere", "bincount", "bincount.weights", "equal", "getitem.list", "getitem.mask", "getitem.tensor",
    "histc", "masked_scatter", "masked_select", "nonzero", "one_hot", "repeat_interleave.each", "setitem.mask",
    "unique", "unique.dim", "unique_consecutive", "where.indices",
}  # fmt: skip
"""Samples whose result, or its shape, depends on values: all of their cases, or some."""

DTYPES = (norch.float32, norch.bfloat16, norch.int32, norch.bool)


def on_meta(value):
    """The same arguments without values: a tensor keeps its strides, offset and whether it requires grad."""
    if isinstance(value, norch.Tensor):
        offset, spec = value.storage_offset(), value.spec
        room = norch.empty(offset + max(spec.nbytes // spec.dtype.itemsize, 0), dtype=spec.dtype, device="meta")
        out = room.as_strided(tuple(spec.shape), spec.strides, offset).detach()
        return out.requires_grad_() if value.requires_grad else out
    if isinstance(value, dict):
        return {k: on_meta(v) for k, v in value.items()}
    return type(value)(map(on_meta, value)) if type(value) in (tuple, list) else value


def described(results):
    kinds = [r for r in flat(results) if isinstance(r, norch.Tensor)]
    return [(tuple(r.shape), r.stride(), r.dtype, r.requires_grad) for r in kinds]


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if s.gives != "python"])
def test_every_op_has_the_results_of_the_cpu(name):
    sample = SAMPLES[name]
    for dtype in [d for d in DTYPES if d in sample.dtypes]:
        for layout in LAYOUTS if sample.layouts else ("plain",):
            for case in sample.cases:
                built = build(sample, case, dtype, "cpu", layout, dtype is norch.float32 and sample.differentiable)
                args, kwargs = on_meta(built.args), on_meta(built.kwargs)
                try:
                    found = sample.function(*args, **kwargs)
                except norch.MetaError:
                    assert name in READS_VALUES
                    continue
                wanted = sample.function(*built.args, **built.kwargs)
                assert described(found) == described(wanted)
                assert all(r.is_meta for r in flat(found) if isinstance(r, norch.Tensor))


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if s.differentiable])
def test_every_op_has_the_gradients_of_the_cpu(name):
    sample = SAMPLES[name]
    for case in sample.cases:
        built = build(sample, case, norch.float32, requires_grad=True)
        args, kwargs = on_meta((built.args, built.kwargs))
        try:
            found = flat(sample.function(*args, **kwargs))
        except norch.MetaError:
            assert name in READS_VALUES
            continue
        wanted = flat(sample.function(*built.args, **built.kwargs))
        for results in (found, wanted):
            outputs = [r for r in results if r.requires_grad]
            norch.autograd.backward(outputs, [norch.ones_like(r) for r in outputs])
        pairs = zip(tensors_of((args, kwargs)), tensors_of((built.args, built.kwargs)), strict=True)
        for meta, real in pairs:
            assert (meta.grad is None) == (real.grad is None)
            if real.grad is not None:
                assert meta.grad.is_meta
                assert described(meta.grad)[0][::2] == described(real.grad)[0][::2]  # shape and dtype


def tensors_of(value):
    if isinstance(value, norch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    return [t for v in value for t in tensors_of(v)] if type(value) in (tuple, list) else []


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if s.inplace and n not in READS_VALUES])
def test_every_op_in_place_gives_the_tensor_back(name):
    sample = SAMPLES[name]
    for case in sample.cases:
        built = build(sample, case, sample.dtypes[-1])
        args, kwargs = on_meta((built.args, built.kwargs))
        before, version = args[0].spec, args[0]._version
        try:
            getattr(built.args[0], sample.inplace)(*built.args[1:], **built.kwargs)
        except norch.NorchError as error:
            with pytest.raises(type(error)):
                getattr(args[0], sample.inplace)(*args[1:], **kwargs)
            continue
        assert getattr(args[0], sample.inplace)(*args[1:], **kwargs) is args[0]
        assert args[0].spec is before
        assert args[0]._version > version


FACTORIES = [
    lambda d: norch.empty(2, 3, device=d),
    lambda d: norch.zeros(2, 3, device=d, dtype=norch.int64),
    lambda d: norch.full((2,), 1.5, device=d),
    lambda d: norch.tensor([[1, 2], [3, 4]], device=d),
    lambda d: norch.as_tensor(np.ones(3), device=d),
    lambda d: norch.arange(7, device=d),
    lambda d: norch.linspace(0, 1, 5, device=d),
    lambda d: norch.eye(3, device=d),
    lambda d: norch.rand(2, 2, device=d, dtype=norch.float64),
    lambda d: norch.randn(2, 2, device=d),
    lambda d: norch.randint(0, 9, (4,), device=d),
    lambda d: norch.randperm(5, device=d),
    lambda d: norch.empty_strided((2, 3), (1, 2), device=d),
    lambda d: norch.ones(2, 3).t().to(d),
    lambda d: norch.ones(2, 3).to(d).new_zeros(4),
    lambda d: norch.multinomial(norch.ones(3, 4, device=d), 2),
    lambda d: norch.zeros(2, 4, device=d)[norch.tensor([0, 1, 1])],
    lambda d: norch.zeros(2, 4, device=d)[norch.tensor([True, False])],
]


@pytest.mark.parametrize("make", FACTORIES)
def test_factories(make):
    found, wanted = make("meta"), make("cpu")
    assert described(found) == described(wanted)
    assert found.is_meta
    assert not wanted.is_meta


def test_where_tensors_are_made_by_default():
    with norch.device("meta"):
        assert norch.ones(2).is_meta
        assert norch.tensor([1.5]).is_meta
    norch.set_default_device("meta")
    try:
        assert norch.get_default_device() is norch.device("meta")
        assert norch.zeros(2, 3).is_meta
    finally:
        norch.set_default_device(None)
    assert not norch.ones(2).is_meta


def test_a_tensor_larger_than_any_memory():
    x = norch.empty(2**40, 16, device="meta", requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.shape == (2**40, 16)
    assert x.grad.is_meta
    x.data.mul_(2).add_(1)


def test_what_it_prints():
    x = norch.empty(2, 3, device="meta")
    assert repr(x) == "tensor(..., device='meta', size=(2, 3))"
    assert repr(x.long()) == "tensor(..., device='meta', size=(2, 3), dtype=norch.int64)"
    assert repr(x.detach().requires_grad_()) == "tensor(..., device='meta', size=(2, 3), requires_grad=True)"
    assert repr(norch.empty(0, device="meta")) == "tensor(..., device='meta', size=(0,))"
    assert f"{x.sum()}" == "tensor(..., device='meta', size=())"
    assert repr(norch.device("meta")) == "device(type='meta')"
    assert (x.get_device(), x.data_ptr(), x.storage().nbytes()) == (-1, 0, 24)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(), lambda x: bool(x.sum()), lambda x: float(x.sum()), lambda x: int(x.sum()),
        lambda x: x.tolist(), lambda x: x.numpy(), lambda x: np.asarray(x), lambda x: x.cpu(), lambda x: x.to("cpu"),
        lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: x.masked_select(x > 0), lambda x: x.unique(),
        lambda x: norch.ones(2, 3).copy_(x), lambda x: norch.equal(x, x), lambda x: norch.allclose(x, x),
        lambda x: 1.0 in x, lambda x: [1, 2][x.long().sum()],
        lambda x: x.repeat_interleave(norch.ones(3, dtype=norch.int64, device="meta"), 1), lambda x: x.__dlpack__(),
        lambda x: f"{x.sum():.2f}",
    ],
)  # fmt: skip
def test_reading_values_says_what_to_do(read):
    x = norch.empty(2, 3, device="meta")
    with pytest.raises(norch.MetaError, match="has a shape and no values. Make it on a real device") as error:
        read(x)
    assert isinstance(error.value, (NotImplementedError, RuntimeError, norch.DeviceError))


def test_shapes_of_linear_algebra():
    x = norch.empty(5, 4, 3, device="meta", requires_grad=True)
    u, s, vh = norch.linalg.svd(x, full_matrices=False)
    assert (u.shape, s.shape, vh.shape) == ((5, 4, 3), (5, 3), (5, 3, 3))
    assert norch.linalg.solve(x.mT @ x, norch.empty(3, 2, device="meta")).shape == (5, 3, 2)
    norch.linalg.inv(x.mT @ x).sum().backward()
    assert x.grad.shape == x.shape


def test_operands_of_two_devices():
    x = norch.empty(2, 3, device="meta")
    assert (x + norch.tensor(1.0)).is_meta
    assert (2 * x).is_meta
    assert norch.where(x > 0, norch.tensor(1.0), x).is_meta
    assert x.copy_(norch.ones(2, 3)) is x
    for wrong in (
        lambda: x + norch.ones(2, 3),
        lambda: norch.ones(2, 3) + x.sum(),
        lambda: x @ norch.ones(3, 1),
        lambda: norch.cat([x, norch.ones(2, 3)]),
    ):
        with pytest.raises(norch.DeviceError, match="different devices: cpu, meta"):
            wrong()


def test_copies_keep_shape_and_strides():
    x = norch.empty(3, 2, device="meta", dtype=norch.float64).t().detach().requires_grad_()
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert described(other) == described(x)
        assert other.is_meta
    error = pickle.loads(pickle.dumps(norch.MetaError("item")))
    assert str(error).startswith("item(): ")


def test_drawing_in_place_takes_no_random_numbers():
    norch.manual_seed(3)
    wanted = norch.rand(4)
    norch.manual_seed(3)
    x = norch.empty(5, device="meta")
    x.uniform_()
    x.normal_()
    assert norch.equal(norch.rand(4), wanted)


@pytest.mark.parametrize("kind", ["norch", "safetensors", "zip", "legacy"])
def test_every_kind_of_file_loads_without_values(tmp_path, kind):
    state = {"a": norch.ones(3, 4), "b": norch.arange(5)}
    path = tmp_path / "file"
    if kind in ("zip", "legacy"):
        torch = pytest.importorskip("torch")
        given = {"a": torch.ones(3, 4), "b": torch.arange(5)}
        torch.save(given, path, _use_new_zipfile_serialization=kind == "zip")
    elif kind == "safetensors":
        norch.save_safetensors(state, path)
    else:
        norch.save(state, path)
    found = norch.load(path, map_location="meta")
    assert {k: described(v) for k, v in found.items()} == {k: described(v) for k, v in state.items()}
    assert all(v.is_meta for v in found.values())


def test_tensors_of_pytorch_on_meta(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.empty(3, 4, device="meta").t(), "b": torch.ones(2)}, tmp_path / "x.pt")
    found = norch.load(tmp_path / "x.pt")
    assert described(found["a"]) == [((4, 3), (1, 4), norch.float32, False)]
    assert found["a"].is_meta
    assert found["b"].tolist() == [1.0, 1.0]


def test_saving_needs_values(tmp_path):
    with pytest.raises(norch.MetaError, match=r"save.*no values"):
        norch.save({"a": norch.empty(2, device="meta")}, tmp_path / "x")


LIKE_PYTORCH = [
    lambda m, x, y: x @ y.transpose(1, 2), lambda m, x, y: x + y.mT.mT, lambda m, x, y: x.mT * 2, lambda m, x, y: x > y,
    lambda m, x, y: x.sum(1), lambda m, x, y: x.mean((0, 2), True), lambda m, x, y: x.max(1)[1],
    lambda m, x, y: x.softmax(-1), lambda m, x, y: m.cat([x, y], 1), lambda m, x, y: m.stack([x, y], -1),
    lambda m, x, y: x.permute(2, 0, 1).reshape(5, -1), lambda m, x, y: x[:, None, ::2], lambda m, x, y: x[..., 1],
    lambda m, x, y: x.sort(0)[1], lambda m, x, y: x.cumsum(1), lambda m, x, y: x.half(),
    lambda m, x, y: m.nn.functional.conv2d(x[None], m.ones(4, 2, 3, 3, device="meta"), padding=1, stride=2),
    lambda m, x, y: m.nn.functional.layer_norm(x, (5,)), lambda m, x, y: m.nn.functional.max_pool2d(x[None], 2),
    lambda m, x, y: m.nn.functional.embedding(m.ones(2, 3, dtype=m.int64, device="meta"), x[0]),
    lambda m, x, y: m.nn.functional.interpolate(x[None], scale_factor=2), lambda m, x, y: m.einsum("bij,bkj->ik", x, y),
    lambda m, x, y: m.where(x > 0, x, 1.0), lambda m, x, y: x.expand(3, 2, 4, 5), lambda m, x, y: x.double()[0].t() * 2,
    lambda m, x, y: x.to(m.float8_e5m2).view(m.uint8), lambda m, x, y: x.std(0), lambda m, x, y: x.argmax(),
    lambda m, x, y: m.nn.functional.scaled_dot_product_attention(x, y, y), lambda m, x, y: x.unfold(2, 3, 1),
    lambda m, x, y: m.arange(3, device="meta") + x.long()[0, 0, :3], lambda m, x, y: x.tril(), lambda m, x, y: x.var(),
]  # fmt: skip


@pytest.mark.parametrize("compute", LIKE_PYTORCH)
def test_as_pytorch_on_meta(compute):
    torch = pytest.importorskip("torch")
    pytest.importorskip("norch.nn.functional")
    found = []
    for module in (torch, norch):
        x, y = (module.empty(2, 4, 5, device="meta") for _ in range(2))
        out = compute(module, x, y)
        found.append((tuple(out.shape), tuple(out.stride()), str(out.dtype).partition(".")[2], out.is_meta))
    assert found[0] == found[1]
