"""vmap: every op on all samples at once gives what a loop over them gives."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import norch
from norch import vmap
from norch.func import jacrev
from norch.func.batched import VmapError
from norch.testing.samples import SAMPLES
from norch.testing.samples.record import replace

SIZE = 3

ON_THE_HOST = """argwhere bincount bincount.weights cov detach gcd getitem.mask histc index_put
    lcm
    masked_scatter masked_select nonzero one_hot repeat_interleave.each setitem setitem.mask setitem.reversed
    setitem.tensor unique unique.dim unique_consecutive where.indices""".split()
"""What reads values, or writes them into a tensor that is the same for all samples: VmapError for some of its cases."""


def tensors_of(result) -> list[norch.Tensor]:
    return [r for r in (result if isinstance(result, tuple | list) else [result]) if isinstance(r, norch.Tensor)]


def called(sample, case, operands) -> tuple[norch.Tensor, ...]:
    rest = iter(operands)
    args, kwargs = replace((case.args, case.kwargs), lambda operand: next(rest))
    return tuple(tensors_of(sample.function(*args, **kwargs)))


def same(found: norch.Tensor, expected: norch.Tensor) -> None:
    assert tuple(found.shape) == tuple(expected.shape)
    assert found.dtype is expected.dtype
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "cat.empty"])  # of shapes that differ
def test_every_op_maps(name) -> None:
    """All operands mapped over, and each alone."""
    sample = SAMPLES[name]
    dtype = norch.float64 if norch.float64 in sample.dtypes else sample.dtypes[0]
    for case in sample.cases:
        operands = list(case.operands())
        everything = set(range(len(operands)))
        for mapped in [everything, *([{i} for i in everything] if len(operands) > 1 else [])]:
            columns = [
                [norch.tensor(o.array(dtype, i + 10 * b * (i in mapped))) for i, o in enumerate(operands)]
                for b in range(SIZE)
            ]
            if not operands or not all(c for c in columns):
                continue
            try:
                expected = [called(sample, case, column) for column in columns]
            except norch.NorchError:
                continue  # other values than the record's may be refused
            if len({tuple(tuple(r.shape) for r in results) for results in expected}) > 1 or not expected[0]:
                continue
            stacked = [
                norch.stack([c[i] for c in columns]) if i in mapped else columns[0][i] for i in range(len(operands))
            ]
            dims = tuple(0 if i in mapped else None for i in range(len(operands)))
            try:
                found = vmap(lambda *given, case=case: called(sample, case, given), dims)(*stacked)
            except VmapError:
                if name in ON_THE_HOST:
                    continue
                raise
            for at, result in enumerate(found):
                same(result, norch.stack([e[at] for e in expected]))


@pytest.mark.parametrize("name", [name for name, sample in SAMPLES.items() if sample.differentiable])
def test_every_gradient_maps(name) -> None:
    """All rows of a Jacobian by one backward pass, beside one pass for each."""
    sample = SAMPLES[name]
    for case in sample.cases:
        operands = [norch.tensor(o.array(norch.float64, i)) for i, o in enumerate(case.operands())]
        places = [i for i, t in enumerate(operands) if t.is_floating_point()]
        if not places or sum(t.numel() for t in operands) > 300 or not all(t.numel() for t in operands):
            continue

        def function(*given, case=case, operands=operands, places=places):
            chosen = dict(zip(places, given, strict=True))
            found = called(sample, case, [chosen.get(i, t) for i, t in enumerate(operands)])
            return tuple(t for t in found if t.is_floating_point())

        inputs = tuple(operands[i] for i in places)
        expected = norch.autograd.functional.jacobian(function, inputs)
        found = jacrev(function, argnums=tuple(range(len(inputs))))(*inputs)
        for row, wanted in zip(found, expected, strict=True):
            for block, other in zip(row, wanted, strict=True):
                same(block, other)


# --- Arguments and results ------------------------------------------------------------------------------------------


@pytest.fixture
def x() -> norch.Tensor:
    return norch.arange(12.0).reshape(4, 3) - 5


def test_dims_of_arguments_and_results(x) -> None:
    same(vmap(lambda a, b: a + b, in_dims=(0, None))(x, norch.ones(3)), x + 1)
    same(vmap(lambda a: a * 2, in_dims=1, out_dims=1)(x), x * 2)
    same(vmap(lambda a: a.cumsum(0), in_dims=-1, out_dims=-1)(x), x.cumsum(0))
    first, second = vmap(lambda a: (a, a.sum()), out_dims=(1, 0))(x)
    same(first, x.T)
    same(second, x.sum(1))
    same(vmap(lambda d: d["a"] * d["b"], in_dims=({"a": 0, "b": None},))({"a": x, "b": x[0]}), x * x[0])
    same(vmap(lambda a: {"sum": [a.sum()]})(x)["sum"][0], x.sum(1))
    same(vmap(lambda a, *, scale: a * scale)(x, scale=3.0), x * 3)
    same(vmap(lambda a: norch.ones(2))(x), norch.ones(4, 2))
    same(vmap(lambda a: norch.ones(2), out_dims=None)(x), norch.ones(2))


def test_chunks(x) -> None:
    for size in (1, 3, 4, 9):
        same(vmap(lambda a: a.softmax(-1), chunk_size=size)(x), x.softmax(-1))
    same(vmap(lambda a: a, out_dims=1, chunk_size=3)(x), x.T)


def test_samples_of_all_chunks_see_the_same_draws() -> None:
    def noisy(a):
        return a + norch.rand(2) + norch.dropout(norch.ones(2))

    x = norch.zeros(5, 2)
    for size in (1, 2, 5):
        norch.manual_seed(3)
        found = vmap(noisy, randomness="same", chunk_size=size)(x)
        norch.manual_seed(3)
        same(found, vmap(noisy, randomness="same")(x))
        same(found, found[:1].expand(5, 2))
    within = vmap(
        lambda b: vmap(lambda a: a + norch.rand(2), randomness="same", chunk_size=2)(b), randomness="different"
    )
    found = within(norch.zeros(3, 5, 2))
    same(found, found[:, :1].expand(3, 5, 2))
    assert len(found[:, 0, 0].unique()) == 3


def test_results_that_are_no_tensors() -> None:
    x = norch.ones(3)
    found = vmap(lambda a: (a * 2, None, "text"), out_dims=(0, None, None))(x)
    assert (found[0].tolist(), found[1:]) == ([2, 2, 2], (None, "text"))
    assert vmap(lambda a: 3, out_dims=None, chunk_size=2)(x) == 3


def test_maps_within_maps(x) -> None:
    outer = vmap(vmap(lambda a, b: a * b, (0, None)), (None, 0))
    same(outer(x[:, 0], x[0]), x[:, 0] * x[0].reshape(3, 1))
    y = norch.arange(24.0).reshape(2, 3, 4)
    same(vmap(vmap(vmap(lambda a: a * a)))(y), y * y)
    same(vmap(vmap(lambda a, b: a @ b, (0, None)), (0, 0))(y, y[:, 0]), norch.einsum("ijk,ik->ij", y, y[:, 0]))


def test_a_0d_sample_does_not_widen_as_a_batch_would() -> None:
    out = vmap(lambda a, b: a * b)(norch.ones(4, 3), norch.ones(4, dtype=norch.float64))
    assert out.dtype is norch.float32


def test_indexing_by_a_mapped_index(x) -> None:
    index = norch.tensor([0, 2, 1, 0])
    same(vmap(lambda a, i: a[i])(x, index), x[norch.arange(4), index])
    same(vmap(lambda i: x[:, i])(index), x[:, index].T)
    same(vmap(lambda i: x[i, i])(index), x[index, index])
    same(vmap(lambda a, i: a[i[:2]])(x, norch.stack([index, index, index, index])), x[:, index[:2]])


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(x, accumulate) -> None:
    rows = norch.tensor([2, 0, 2])
    for values in (norch.ones(3), norch.tensor(5.0)):
        found = vmap(lambda a, v=values: a.index_put((rows,), v, accumulate))(x)
        same(found, norch.stack([a.index_put((rows,), values, accumulate) for a in x]))
    mapped = vmap(lambda a, i: a.index_put((i,), a[0], accumulate))(x, norch.tensor([0, 1, 1, 2]))
    same(mapped, norch.stack([a.index_put((i,), a[0], accumulate) for a, i in zip(x, [0, 1, 1, 2], strict=True)]))
    with pytest.raises(IndexError, match="at least one"):
        vmap(lambda a: a.index_put((), a))(x)


def _matrices():
    rng = np.random.default_rng(0)
    return norch.tensor(rng.standard_normal((2, 3, 4, 4)))


LINALG = {
    "svdvals": norch.linalg.svdvals,
    "svd": lambda a: norch.linalg.svd(a).S,
    "eigvalsh": lambda a: norch.linalg.eigvalsh(a @ a.mT),
    "eigh": lambda a: norch.linalg.eigh(a @ a.mT)[0],
    "lu": lambda a: norch.linalg.lu(a)[2],
    "lu_solve": lambda a: norch.linalg.lu_solve(*norch.linalg.lu_factor(a), a.mT),
    "lstsq": lambda a: norch.linalg.lstsq(a[:, :2], a[:, 2:]).solution,
    "pinv": norch.linalg.pinv,
    "matrix_rank": lambda a: norch.linalg.matrix_rank(a).double(),
    "cond": norch.linalg.cond,
    "matrix_norm": lambda a: norch.linalg.matrix_norm(a, 2) + norch.linalg.matrix_norm(a, "nuc"),
    "matrix_exp": lambda a: norch.linalg.matrix_exp(a * a.abs().amax()),
    "qr": lambda a: norch.linalg.qr(a).R.abs(),
    "cholesky_ex": lambda a: norch.linalg.cholesky_ex(a @ a.mT)[0],
    "inv_ex": lambda a: norch.linalg.inv_ex(a)[0],
    "slogdet": lambda a: norch.linalg.slogdet(a).logabsdet,
    "eigvals": lambda a: norch.linalg.eigvals(a).abs().sum(),
}


@pytest.mark.parametrize("name", LINALG)
def test_linear_algebra(name) -> None:
    """Of all samples together, and in maps within maps; gradients too."""
    function, a = LINALG[name], _matrices()
    wanted = norch.stack([norch.stack([function(m) for m in some]) for some in a])
    norch.testing.assert_close(vmap(function)(a[0]), wanted[0], rtol=1e-8, atol=1e-8)
    norch.testing.assert_close(vmap(vmap(function))(a), wanted, rtol=1e-8, atol=1e-8)
    if name == "matrix_rank":
        return

    def loss(m):
        return function(m).pow(2).sum()

    gradients = norch.stack([norch.func.grad(loss)(m) for m in a[0]])
    norch.testing.assert_close(vmap(norch.func.grad(loss))(a[0]), gradients, rtol=1e-6, atol=1e-6)


def test_a_failure_of_linear_algebra_is_raised_for_any_sample() -> None:
    a = norch.stack([norch.eye(2), norch.zeros(2, 2)])
    with pytest.raises(norch.linalg.LinAlgError):
        vmap(norch.linalg.inv)(a)


def test_in_place_changes(x) -> None:
    def changed(a):
        y = a.clone()
        y[0] = a[1]
        y[1:] *= 2
        y[norch.tensor([2])] = 7.0
        z = norch.zeros_like(a)
        z[:2] = y[:2]
        return y.add_(z).clamp_(max=9.0)

    same(vmap(changed)(x), norch.stack([changed(row) for row in x]))
    w = x.clone().requires_grad_()
    vmap(changed)(w).sum().backward()
    loop = x.clone().requires_grad_()
    norch.stack([changed(row) for row in loop]).sum().backward()
    same(w.grad, loop.grad)


def test_a_mapped_tensor_is_changed_for_all_samples(x) -> None:
    before = x.clone()
    vmap(lambda a: a.add_(1))(x)
    same(x, before + 1)


# --- Random numbers -------------------------------------------------------------------------------------------------

DRAWS = {
    "randn": lambda a: norch.randn(3),
    "rand_like": norch.rand_like,
    "randint": lambda a: norch.randint(0, 1000, (3,)),
    "randperm": lambda a: norch.randperm(30),
    "bernoulli": lambda a: norch.bernoulli(a * 0 + 0.5).repeat(20) * norch.rand(60),
    "normal_": lambda a: a.clone().normal_(),
    "dropout": lambda a: norch.dropout((a * 0 + 1).repeat(30)),
    "exponential_": lambda a: a.clone().exponential_(),
    "poisson": lambda a: norch.poisson((a * 0 + 50).repeat(30)),
    "dropout of what is not mapped": lambda a: norch.dropout(norch.ones(60)),
    "multinomial of what is not mapped": lambda a: norch.multinomial(norch.ones(60), 40),
    "poisson of what is not mapped": lambda a: norch.poisson(norch.full((60,), 5.0)),
    "multinomial": lambda a: norch.multinomial((a * 0 + 1).repeat(30), 40),
    "multinomial of few": lambda a: norch.multinomial(a * 0 + 1, 40, replacement=True),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_ops(name, x) -> None:
    norch.manual_seed(0)
    with pytest.raises(RuntimeError, match="randomness='different' or randomness='same'"):
        vmap(DRAWS[name])(x)
    rows = vmap(DRAWS[name], randomness="different")(x).tolist()
    assert all(a != b for a, b in itertools.combinations(rows, 2))
    rows = vmap(DRAWS[name], randomness="same")(x).tolist()
    assert all(row == rows[0] for row in rows)


def test_multinomial_goes_by_the_weights_of_its_sample() -> None:
    norch.manual_seed(0)
    weights = norch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    found = vmap(lambda w: norch.multinomial(w, 50, replacement=True), randomness="different")(weights)
    assert [sorted(set(row)) for row in found.tolist()] == [[1], [0], [1, 2]]
    assert vmap(lambda w: norch.multinomial(w, 1), randomness="different")(weights[:2]).tolist() == [[1], [0]]


# --- Functions with a derivative of their own -----------------------------------------------------------------------


class Cube(norch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0] ** 2


class MappedCube(Cube):
    @staticmethod
    def vmap(info, in_dims, x):
        assert (info.batch_size, info.randomness, in_dims) == (4, "error", (0,))
        return MappedCube.apply(x.movedim(0, -1)), -1


def test_a_custom_function_runs_in_a_loop_with_one_warning(x) -> None:
    with pytest.warns(UserWarning, match="Cube has no batching rule: it runs once for each of the 4 samples"):
        same(vmap(Cube.apply)(x), x**3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(vmap(norch.func.grad(lambda a: Cube.apply(a).sum()))(x), 3 * x**2)


def test_a_custom_function_says_how_it_is_mapped(x) -> None:
    same(vmap(MappedCube.apply)(x), x**3)
    same(vmap(norch.func.grad(lambda a: MappedCube.apply(a).sum()))(x), 3 * x**2)


# --- Mistakes -------------------------------------------------------------------------------------------------------


def test_what_cannot_be_mapped_says_so(x) -> None:
    with pytest.raises(RuntimeError, match="item reads a value on the host"):
        vmap(lambda a: a.sum().item())(x)
    with pytest.raises(RuntimeError, match=r"use norch\.where in place of a branch"):
        vmap(lambda a: a if a.sum() > 0 else -a)(x)
    with pytest.raises(RuntimeError, match="written in place into a tensor that does not"):
        vmap(lambda a: norch.zeros(3).add_(a))(x)
    with pytest.raises(norch.AutogradError, match=r"use norch\.func\.grad"):
        vmap(lambda a: a.sum().backward())(x)


def test_arguments_that_do_not_fit(x) -> None:
    for call, message in (
        (lambda: vmap(lambda a: a, in_dims=(0, 0))(x), "does not fit the arguments"),
        (lambda: vmap(lambda a, b: a)(x, norch.ones(5)), r"differ in size: \[4, 5\]"),
        (lambda: vmap(lambda a: a, in_dims=4)(x), r"has 4 for a tensor of shape \(4, 3\)"),
        (lambda: vmap(lambda a, b: a)(x, 3), "argument of type int; it needs None"),
        (lambda: vmap(lambda a: a, in_dims=(None,))(x), "at least one argument"),
        (lambda: vmap(lambda: norch.ones(2))(), "without arguments"),
        (lambda: vmap(lambda a: 1.0)(x), "must return tensors where out_dims has 0, got float"),
        (lambda: vmap(lambda a: a, out_dims=None)(x), "out_dims is None for a result that differs"),
        (lambda: vmap(lambda a: a, out_dims=(0, 0))(x), "out_dims .* does not fit"),
        (lambda: vmap(lambda a: a, randomness="maybe"), "randomness must be one of"),
        (lambda: vmap(lambda a: a, chunk_size=0), "chunk_size must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_functions_in_place_of_samples() -> None:
    x = norch.arange(-3.0, 3.0).view(3, 2)
    for dim in (0, 1):
        given = x.clone()
        found = norch.func.vmap(norch.abs_, in_dims=dim, out_dims=dim)(given)
        assert found.tolist() == given.tolist() == x.abs().tolist()
    nested = norch.func.vmap(norch.func.vmap(norch.relu_))(x.clone())
    assert nested.tolist() == x.relu().tolist()
    with pytest.raises(norch.DTypeError, match=r"abs_\(\): input must be a Tensor, got int 3"):
        norch.abs_(3)


def test_detach_of_the_class(x) -> None:
    found = vmap(lambda row: row.exp() - norch.Tensor.detach(row.exp().sum(0, keepdim=True)))(x)
    assert norch.equal(found, x.exp() - x.exp().sum(1, keepdim=True))
