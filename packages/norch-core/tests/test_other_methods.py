"""Methods that are no ops: questions, in-place changes of shape, hooks after a gradient, memory formats."""

from __future__ import annotations

import pytest

import norch


def test_questions():
    x = norch.ones(2, 3)
    assert x.get_device() == norch.get_device(x) == -1
    assert (norch.is_floating_point(x), norch.is_complex(x), norch.is_signed(x.byte())) == (True, False, False)
    assert norch.numel(x) == 6
    assert norch.is_same_size(x, x * 2)
    assert x.is_set_to(x.view(2, 3))
    assert not x.is_set_to(x.clone())
    assert norch.is_nonzero(norch.tensor([0.5]))
    assert not norch.tensor(0).is_nonzero()
    with pytest.raises(norch.ShapeError, match="ambiguous"):
        x.is_nonzero()
    assert norch.typename(x) == "norch.float32"
    assert norch.typename(norch.Size) == "norch.spec.Size"
    assert norch.typename([]) == "list"
    assert (x.layout, x.is_sparse, x.is_meta, x.is_quantized) == (norch.strided, False, False, False)
    assert norch.is_storage(x.storage())
    assert norch.can_cast(norch.int32, norch.float16)
    assert not norch.can_cast(norch.float16, norch.int64)
    assert not norch.float32.is_complex


def test_transposes():
    x = norch.arange(6).reshape(2, 3)
    assert norch.equal(x.H, x.T)
    assert norch.equal(x.mH, x.adjoint())
    with pytest.raises(norch.ShapeError, match="mH"):
        norch.ones(1, 2, 3).H


def test_shapes_change_in_place():
    x = norch.arange(6.0).reshape(1, 2, 3)
    memory = x.data_ptr()
    assert x.squeeze_(0) is x
    assert x.unsqueeze_(-1).shape == (2, 3, 1)
    x.squeeze_()
    assert x.t_().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert x.transpose_(0, 1).shape == (2, 3)
    assert x.data_ptr() == memory


def test_shapes_that_change_in_place_are_differentiated():
    a = norch.arange(6.0).reshape(2, 3).requires_grad_()
    b = a * 2
    b.t_()
    (b * norch.arange(6.0).reshape(3, 2)).sum().backward()
    assert a.grad.tolist() == [[0, 4, 8], [2, 6, 10]]
    view = (a * 1)[0]
    view.unsqueeze_(0)
    assert norch.autograd.grad(view.sum(), a)[0].tolist() == [[1, 1, 1], [0, 0, 0]]
    for leaf in (a, norch.ones(1, 2).expand(3, 2).requires_grad_()):
        with pytest.raises(norch.AutogradError, match="leaf"):
            leaf.t_()


@pytest.mark.parametrize("make", [lambda a: a, lambda a: a * 1, lambda a: a[:]], ids=["leaf", "result", "view"])
@pytest.mark.parametrize(
    ("change", "shape"),
    [("t_", (3, 2)), ("squeeze_", (2, 3)), ("unsqueeze_", (1, 2, 3)), ("transpose_", (3, 2))],
)
def test_shapes_that_change_under_no_grad_keep_their_gradient(make, change, shape):
    a = norch.arange(6.0).reshape(2, 3).requires_grad_()
    b = make(a)
    with norch.no_grad():
        getattr(b, change)(*{"unsqueeze_": (0,), "transpose_": (0, 1)}.get(change, ()))
    assert b.shape == shape
    assert b.requires_grad
    assert b.is_leaf is (b is a)
    (b * b).sum().backward()
    assert a.grad.tolist() == (a * 2).tolist()


def test_a_shape_changed_under_what_saved_it_is_an_error_not_a_wrong_gradient():
    a = norch.ones(2, 2, requires_grad=True)
    b = a * 2
    c = b * b
    b.t_()
    with pytest.raises(norch.AutogradError, match="t_ has changed it"):
        c.sum().backward()


def test_a_tensor_is_set_on_other_memory():
    source, x = norch.arange(6.0), norch.zeros(2)
    assert x.set_(source) is x
    source[0] = 9
    assert x.tolist() == [9, 1, 2, 3, 4, 5]
    assert x.set_(source, 1, (2, 2), (2, 1)).tolist() == [[1, 2], [3, 4]]
    assert x.set_(source.storage(), 2, (2, 2)).tolist() == [[2, 3], [4, 5]]
    assert x.set_(source.untyped_storage()).shape == (6,)
    assert x.set_().shape == (0,)
    with pytest.raises(norch.DTypeError, match=r"set_\(\)"):
        x.set_(norch.arange(3))
    with pytest.raises(norch.ShapeError):
        x.set_(source, 4, (3,))
    with pytest.raises(norch.AutogradError, match="keeps its memory"):
        norch.ones(2, requires_grad=True).set_(source)


def test_a_tensor_shows_other_strides_of_its_memory():
    x = norch.arange(6.0)
    assert x.as_strided_((2, 2), (2, 1)) is x
    assert x.tolist() == [[0, 1], [2, 3]]
    leaf = norch.ones(4, requires_grad=True)
    (leaf * 2).as_strided_((2,), (2,)).sum().backward()
    assert leaf.grad.tolist() == [2, 0, 2, 0]
    assert norch.as_tensor([1.0], requires_grad=True).requires_grad


def test_fill_diagonal():
    assert norch.zeros(2, 3).fill_diagonal_(2).tolist() == [[2, 0, 0], [0, 2, 0]]
    assert norch.zeros(3, 3, 3).fill_diagonal_(1).sum().item() == 3
    tall = norch.zeros(7, 3, dtype=norch.int64)
    assert tall.clone().fill_diagonal_(1).sum().item() == 3
    assert tall.fill_diagonal_(1, wrap=True).nonzero().tolist() == [[0, 0], [1, 1], [2, 2], [4, 0], [5, 1], [6, 2]]
    with pytest.raises(norch.ShapeError, match=r"\(2, 3, 3\)"):
        norch.zeros(2, 3, 3).fill_diagonal_(1)


def test_sum_to_size():
    x = norch.arange(12).reshape(2, 2, 3)
    assert x.sum_to_size(2, 1).tolist() == [[24], [42]]
    assert x.sum_to_size(2, 2, 3).tolist() == x.tolist()
    assert x.float().sum_to_size((1,)).tolist() == [66]
    with pytest.raises(norch.ShapeError, match=r"\(2, 2, 3\)"):
        x.sum_to_size(3, 3)


def test_new_tensors():
    x = norch.ones(2, dtype=norch.float64)
    assert x.new([1, 2]).dtype is norch.float64
    assert x.new(2, 3).shape == x.new(norch.Size([2, 3])).shape == x.new(size=(2, 3)).shape == (2, 3)
    assert x.new_zeros(2, requires_grad=True).requires_grad
    made = x.new_empty_strided((2, 3), (1, 2))
    assert (made.shape, made.stride(), made.dtype) == ((2, 3), (1, 2), norch.float64)
    assert norch.empty_strided((2, 2), (1, 2)).fill_(3).tolist() == [[3, 3], [3, 3]]
    assert norch.scalar_tensor(2).tolist() == 2.0
    assert norch.allclose(norch.logspace(0, 2, 3), norch.tensor([1.0, 10.0, 100.0]))
    assert norch.allclose(norch.logspace(0, 3, 4, base=2), norch.tensor([1.0, 2.0, 4.0, 8.0]))


def test_triangle_indices():
    assert norch.tril_indices(3, 2).tolist() == [[0, 1, 1, 2, 2], [0, 0, 1, 0, 1]]
    assert norch.triu_indices(2, 3, 1, dtype=norch.int32).tolist() == [[0, 0, 1], [1, 2, 2]]


def test_python_functions_of_elements():
    x = norch.tensor([1.0, 4.0, 9.0])
    assert x.apply_(lambda v: v**0.5).tolist() == [1, 2, 3]
    assert x.map_(norch.tensor([10.0]), lambda a, b: a + b).tolist() == [11, 12, 13]
    assert x.where(x > 11, 0).tolist() == [0, 12, 13]


def test_hooks_after_a_gradient():
    seen = []
    x = norch.ones(2, requires_grad=True)
    handle = x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    (x * 3).sum().backward()
    (x * x).sum().backward()
    assert seen == [[3, 3], [5, 5]]
    handle.remove()
    x.sum().backward()
    assert len(seen) == 2
    with pytest.raises(norch.AutogradError, match="leaf"):
        (x * 2).register_post_accumulate_grad_hook(print)


def test_hook_may_step_and_forget_the_gradient():
    x = norch.ones(2, requires_grad=True)

    def step(parameter):
        with norch.no_grad():
            parameter.sub_(parameter.grad)
        parameter.grad = None

    x.register_post_accumulate_grad_hook(step)
    (x * 0.5).sum().backward()
    assert x.grad is None
    assert x.tolist() == [0.5, 0.5]


def test_memory_formats():
    x = norch.randn(2, 3, 4, 5)
    for last in (
        x.to(memory_format=norch.channels_last),
        x.contiguous(memory_format=norch.channels_last),
        x.clone(memory_format=norch.channels_last),
        norch.empty_like(x, memory_format=norch.channels_last).copy_(x),
    ):
        assert last.stride() == (60, 1, 15, 3)
        assert last.is_contiguous(memory_format=norch.channels_last)
        assert norch.equal(last, x)
    assert last.contiguous(memory_format=norch.channels_last) is last
    assert last.clone(memory_format=norch.contiguous_format).is_contiguous()
    assert x.clone(memory_format=norch.preserve_format).stride() == x.stride()
    with pytest.raises(norch.ShapeError, match="4 dims"):
        norch.ones(2).contiguous(memory_format=norch.channels_last)
    with pytest.raises(ValueError, match="memory_format"):
        x.contiguous(memory_format="channels_last")


def test_arguments_of_creation():
    assert norch.zeros(size=(2, 3)).shape == (2, 3)
    assert norch.ones(2, layout=norch.strided, pin_memory=False).tolist() == [1, 1]
    assert norch.zeros(2, out=norch.ones(2)).tolist() == [0, 0]
    with pytest.raises(TypeError, match=r"full\(\): unexpected arguments colour"):
        norch.full((2,), 1, colour="red")
    with pytest.raises(TypeError, match="unexpected argument 'dtyp'"):
        norch.ones(2).to(dtyp=norch.float64)
    assert norch.rand_like(norch.ones(2), requires_grad=True).requires_grad


def test_pinned_memory_needs_a_device_for_it():
    x = norch.ones(2)
    assert not x.is_pinned()
    if not norch.cuda.is_available():
        with pytest.raises(norch.DeviceError, match="pin_memory"):
            x.pin_memory()


def test_streams_of_memory_are_for_devices_that_have_them():
    with pytest.raises(NotImplementedError, match=r"record_stream\(\): the device cpu has no streams"):
        norch.ones(2, device="cpu").record_stream(None)


def test_repeat_interleave_with_a_known_size():
    x = norch.tensor([5, 6, 7])
    assert x.repeat_interleave(norch.tensor([1, 0, 2]), output_size=3).tolist() == [5, 7, 7]
    with pytest.raises(norch.ShapeError, match="2 repeats"):
        x.repeat_interleave(norch.tensor([1, 2]))
    with pytest.raises(norch.DTypeError, match="repeats"):
        x.repeat_interleave(1.5)


def test_searchsorted_with_an_order():
    x = norch.tensor([3.0, 1.0, 2.0])
    found = norch.searchsorted(x, norch.tensor([0.5, 2.5]), sorter=x.argsort(), out_int32=True)
    assert (found.tolist(), found.dtype) == ([0, 2], norch.int32)


def test_scatter_that_reduces():
    x, index = norch.ones(3), norch.tensor([0, 0, 2])
    assert x.scatter(0, index, norch.tensor([1.0, 2.0, 3.0]), reduce="add").tolist() == [4, 1, 4]
    assert x.clone().scatter_(0, index, 3.0, reduce="multiply").tolist() == [9, 1, 3]
    with pytest.raises(ValueError, match="scatter_reduce"):
        x.scatter(0, index, 1.0, reduce="mean")


def test_names_of_arguments():
    x = norch.arange(6).reshape(2, 3)
    assert x.reshape(shape=(3, 2)).shape == x.view(size=(3, 2)).shape == x.permute(dims=(1, 0)).shape == (3, 2)
    assert x[:, :1].expand(size=(2, 4)).shape == (2, 4)
    assert x.flip(dims=(0, 1)).tolist() == x.flip(0, 1).tolist() == [[5, 4, 3], [2, 1, 0]]
    assert norch.cat([x, x], axis=1).shape == (2, 6)
    assert norch.stack([x, x], axis=-1).shape == (2, 3, 2)
    assert norch.randn(size=(2,)).shape == norch.randint(5, size=(2,)).shape == norch.randint(high=5, size=(2,)).shape
    assert norch.pow(x, exponent=2).tolist() == x.pow(2).tolist()


def test_a_number_formats_as_one():
    assert f"{norch.tensor(3)}" == "3"
    assert f"{norch.tensor(0.5, requires_grad=True)}" == "0.5"
    assert f"{norch.tensor([0.25]):.1f}" == "0.2"
    assert f"{norch.tensor([1])}" == "tensor([1])"


def test_resizing_in_place():
    x = norch.arange(6.0)
    assert x.resize_(2, 3) is x
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    address = x.data_ptr()
    assert x.resize_((2, 2)).tolist() == [[0, 1], [2, 3]]
    assert x.data_ptr() == address
    assert x.resize_(3, 4).shape == (3, 4)
    assert x.reshape(-1)[:6].tolist() == [0, 1, 2, 3, 4, 5]
    x.copy_(norch.ones(3, 4))
    assert x.sum().item() == 12
    assert norch.empty(0).resize_as_(x).copy_(x).tolist() == x.tolist()
    row = norch.zeros(2, 3)[1]
    assert row.resize_(1).tolist() == [0]
    with pytest.raises(norch.ShapeError, match="a view of shape"):
        row.resize_(100000)
    with pytest.raises(norch.AutogradError, match="requires grad"):
        norch.ones(2, requires_grad=True).resize_(3)


def test_set_of_a_leaf_that_requires_grad() -> None:
    x, source = norch.ones(2, requires_grad=True), norch.tensor([3.0, 4.0])
    with pytest.raises(norch.AutogradError, match="set_"):
        x.set_(source)
    with norch.no_grad():
        assert x.set_(source) is x
        with pytest.raises(norch.AutogradError, match="set_"):
            (norch.enable_grad()(lambda: x * 2)()).set_(source)
    assert x.requires_grad
    assert x.is_leaf
    assert x.data_ptr() == source.data_ptr()
    assert norch.autograd.grad(x.pow(2).sum(), x)[0].tolist() == [6.0, 8.0]
