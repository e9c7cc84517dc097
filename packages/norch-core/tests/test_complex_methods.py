"""Methods of complex numbers: views that share memory, writing in place, inverse functions, custom functions."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.testing.gradcheck import gradcheck

RNG = np.random.default_rng(5)
NA = RNG.standard_normal((4, 3)) + 1j * RNG.standard_normal((4, 3))
NB = RNG.standard_normal((4, 3)) + 1j * RNG.standard_normal((4, 3))
ROWS = np.array([2, 0, 2])


def pair(values):
    return norch.tensor(np.array(values))


VIEWS = {
    "select": (lambda z: z.select(-1, 2), NA[:, 2]),
    "narrow": (lambda z: z.narrow(-2, 1, 2), NA[1:3]),
    "unsqueeze": (lambda z: z.unsqueeze(-1), NA[..., None]),
    "squeeze": (lambda z: z.unsqueeze(0).squeeze(), NA),
    "squeeze of one dim": (lambda z: z.unsqueeze(1).squeeze(-2), NA),
    "unbind": (lambda z: z.unbind()[1], NA[1]),
    "split": (lambda z: z.split(2, -1)[0], NA[:, :2]),
    "tensor_split": (lambda z: z.tensor_split(2)[1], NA[2:]),
    "chunk": (lambda z: z.chunk(2, dim=0)[0], NA[:2]),
    "movedim": (lambda z: z.movedim(-1, 0), NA.T),
    "permute": (lambda z: z.permute(-1, 0), NA.T),
    "transpose": (lambda z: z.transpose(-1, -2), NA.T),
    "t": (lambda z: z.t(), NA.T),
    "expand": (lambda z: z.unsqueeze(0).expand(1, -1, -1), NA[None]),
    "diagonal": (lambda z: z.diagonal(1), np.diagonal(NA, 1)),
    "unfold": (lambda z: z.unfold(0, 2, 2), np.stack([NA[:2].T, NA[2:].T])),
    "flatten": (lambda z: z.flatten(), NA.ravel()),
    "unflatten": (lambda z: z.unflatten(-2, (2, 2)), NA.reshape(2, 2, 3)),
}


@pytest.mark.parametrize(("view", "expected"), VIEWS.values(), ids=VIEWS)
def test_views_share_memory(view, expected):
    z = pair(NA)
    found = view(z)
    np.testing.assert_array_equal(found.numpy(), expected)
    found.zero_()
    assert np.count_nonzero(z.numpy()) == NA.size - expected.size


def test_moving_dims_in_place():
    for name, dims, shape in (
        ("unsqueeze_", (1,), (4, 1, 3)), ("unsqueeze_", (-1,), (4, 3, 1)), ("t_", (), (3, 4)),
        ("transpose_", (0, -1), (3, 4)),
    ):  # fmt: skip
        z = pair(NA)
        assert getattr(z, name)(*dims) is z
        assert z.shape == shape
    z = pair(NA[None])
    assert z.squeeze_(0).shape == pair(NA)[..., None].squeeze_().shape == (4, 3)
    np.testing.assert_array_equal(pair(NA).t_().numpy(), NA.T)


def test_scaled_sums_and_scattered_numbers():
    np.testing.assert_allclose(pair(NA).add(pair(NB), alpha=2j).numpy(), NA + 2j * NB)
    np.testing.assert_allclose(pair(NA).sub(pair(NB), alpha=0.5).numpy(), NA - 0.5 * NB)
    index = norch.tensor([[0], [2], [1], [0]])
    for value in (2.5, 1 - 2j):
        expected = NA.copy()
        np.put_along_axis(expected, index.numpy(), value, 1)
        np.testing.assert_array_equal(pair(NA).scatter(1, index, value).numpy(), expected)
        np.testing.assert_array_equal(pair(NA).scatter_(1, index, value=value).numpy(), expected)


def test_a_dim_out_of_range():
    for dim in (2, -3):
        with pytest.raises(norch.ShapeError, match="out of range"):
            pair(NA).select(dim, 0)


def changed(change):
    z = NA.copy()
    change(z)
    return z


IN_PLACE = {
    "index_add_": (lambda z: z.index_add_(0, norch.tensor(ROWS), pair(NB[:3])), lambda a: np.add.at(a, ROWS, NB[:3])),
    "index_put_": (
        lambda z: z.index_put_((norch.tensor(ROWS),), pair(NB[:3]), accumulate=True),
        lambda a: np.add.at(a, ROWS, NB[:3]),
    ),
    "masked_fill_": (lambda z: z.masked_fill_(norch.tensor(NA.real > 0), 2 + 1j), lambda a: np.put(a, *POSITIVE)),
    "index_fill_": (lambda z: z.index_fill_(0, norch.tensor(ROWS), 1j), lambda a: a.__setitem__(ROWS, 1j)),
    "neg_": (lambda z: z.neg_(), lambda a: np.negative(a, a)),
    "exp_": (lambda z: z.exp_(), lambda a: np.exp(a, a)),
    "multiply_": (lambda z: z.multiply_(pair(NB)), lambda a: np.multiply(a, NB, a)),
}
POSITIVE = (np.flatnonzero(NA.real > 0), 2 + 1j)


@pytest.mark.parametrize(("write", "change"), IN_PLACE.values(), ids=IN_PLACE)
def test_in_place(write, change):
    z = pair(NA)
    part = z.real
    assert write(z) is z
    np.testing.assert_allclose(z.numpy(), changed(change), 1e-12)
    np.testing.assert_allclose(part.numpy(), changed(change).real, 1e-12)


EDGES = [2, -2, 0.5, 2j, -2j, 0.5j, 0, complex(-3, -0.0), complex(-0.5, -0.0), 100 + 1j, -3 + 4j]


@pytest.mark.parametrize("name", "arcsin arccos arctan arcsinh arccosh arctanh log1p expm1".split())
def test_inverse_functions(name):
    z = np.array(EDGES, dtype=np.complex128)
    np.testing.assert_allclose(getattr(pair(z), name)().numpy(), getattr(np, name)(z), 1e-12, 1e-15)


def test_products():
    square = NA[:3]
    z, b = pair(square), pair(NB[:3])
    for n in (-1, 0, 1, 5):
        np.testing.assert_allclose(z.matrix_power(n).numpy(), np.linalg.matrix_power(square, n), 1e-9)
    np.testing.assert_allclose(z.addmm(z, b, alpha=2).numpy(), square + 2 * square @ NB[:3], 1e-12)
    np.testing.assert_allclose(z.addcmul(z, b, value=0.5).numpy(), square + 0.5 * square * NB[:3], 1e-12)
    np.testing.assert_allclose(z.lerp(b, 0.3).numpy(), square + 0.3 * (NB[:3] - square), 1e-12)


class Scaled(norch.autograd.Function):
    """(2 + i) z and (1 + 2i) x of complex z and real x."""

    @staticmethod
    def forward(ctx, z, x):
        factor = norch.tensor([2 + 1j], dtype=norch.cdouble)
        ctx.save_for_backward(factor, x)
        return z * factor, norch.view_as_complex(norch.stack([x, 2 * x], -1))

    @staticmethod
    def backward(ctx, grad, of_x):
        factor, x = ctx.saved_tensors
        assert [norch.is_complex(value) for value in (factor, grad, x)] == [True, True, False]
        return grad * factor.conj(), of_x * (1 - 2j)


def test_custom_functions_take_and_give_complex_numbers():
    parts = norch.tensor(np.stack([NA.real, NA.imag], -1), requires_grad=True)
    x = norch.tensor(NB.real, requires_grad=True)

    def call(parts, x):
        first, second = Scaled.apply(norch.view_as_complex(parts), x)
        return norch.view_as_real(first), norch.view_as_real(second)

    assert gradcheck(call, (parts, x))


def test_hooks_get_complex_numbers():
    parts = norch.ones(3, 2, requires_grad=True)
    z = norch.view_as_complex(parts) * 1
    seen = []
    z.register_hook(lambda grad: seen.append(grad.shape) or grad * 2)
    z.sum().backward(norch.complex(norch.tensor(1.0), norch.tensor(0.0)))
    assert seen == [(3,)]
    assert parts.grad[:, 0].tolist() == [2.0, 2.0, 2.0]


def test_strides_count_numbers():
    assert norch.view_as_complex(norch.zeros(4, 3, 2)).stride() == (3, 1)
    assert norch.complex(norch.zeros(4, 3), norch.zeros(4, 3)).stride() == (3, 1)


def test_complex_numbers_are_mapped_over():
    z, x = pair(NA), norch.tensor(NA.real.copy())
    products = norch.func.vmap(lambda row, other: row * other, in_dims=(0, None))(z, z[1])
    np.testing.assert_allclose(norch.view_as_real(products).numpy().view(np.complex128)[..., 0], NA * NA[1])
    columns = norch.func.vmap(norch.fft.rfft, in_dims=1, out_dims=-1)(x)
    assert columns.shape == (3, 3)
    np.testing.assert_allclose(
        norch.view_as_real(columns).numpy().view(np.complex128)[..., 0], np.fft.rfft(NA.real, axis=0)
    )
    lengths = norch.func.vmap(lambda row: row.abs(), chunk_size=2)(z)
    np.testing.assert_allclose(lengths.numpy(), np.abs(NA))
    nested = norch.func.vmap(norch.func.vmap(lambda v: v * 1j))(x)
    np.testing.assert_allclose(nested.imag.numpy(), NA.real)
    with pytest.raises(ValueError, match="out_dim is None"):
        norch.func.vmap(norch.fft.rfft, out_dims=None)(x)


def test_angles_of_real_numbers():
    x = norch.tensor([np.inf, -np.inf, np.nan, 0.0, -0.0, 2.0, -2.0], requires_grad=True)
    found = norch.angle(x)
    np.testing.assert_array_equal(found.detach().numpy(), np.float32([0, np.pi, np.nan, 0, 0, 0, np.pi]))
    assert not np.signbit(found.detach().numpy()).any()
    assert norch.autograd.grad(norch.angle(x[3:]).sum(), x)[0].tolist() == [0.0] * 7
    for dtype in (norch.int64, norch.bool):
        whole = norch.angle(norch.tensor([0, 1]).to(dtype))
        assert whole.dtype is norch.float32
        assert whole.tolist() == [0.0, 0.0]
