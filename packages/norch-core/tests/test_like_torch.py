"""The same lines, with `t` norch and with `t` PyTorch, give the same: values, dtypes, shapes and gradients.

Runs where PyTorch is installed. Without it the sample records say the same of most ops, from NumPy.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import norch

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")

nan, inf = math.nan, math.inf
F = np.array([[0.3, -1.2, 2.5, 0.3], [1.7, 0.4, -0.6, -2.2], [0.9, 0.3, 1.1, -0.4]])
P = np.array([[0.3, 0.7, 0.25], [0.55, 0.1, 0.9]])
V = np.array([0.5, -1.5, 2.25])
W = np.array([1.5, 0.25, -0.75])
I = np.array([[3, 1, 2, 3], [0, 2, 2, 7], [5, 1, 1, 1]])
J = np.array([4, 6, -9])
B = np.array([[True, False, True, False], [False, True, True, True], [False, False, False, True]])
N = np.array([[1.0, nan, 3.0], [nan, nan, nan], [2.0, 0.5, nan]])
E = np.array([-inf, -2.0, -0.0, 0.0, 0.5, 1.0, 3.5, 30.0, inf, nan])
M = np.arange(24.0).reshape(2, 3, 4) / 7 - 1.5
"""Matrices of rank 2, whose nuclear norms have many gradients; those of M + F have one."""
G = np.array([[2.0, -0.5, 0.3], [0.4, 1.5, -0.7], [0.1, 0.9, -1.2]])
X1 = np.random.default_rng(0).normal(size=(30, 3))
S = np.array([[1, 0, 2], [2, 2, 0]])


def at(*values):
    return np.array(values)


# Each line: the arrays that it takes as tensors, and what is done with them.
LINES = {
    "erfc": [(E,), lambda t, x: t.erfc(x)],
    "erfinv": [(P * 2 - 1,), lambda t, x: t.erfinv(x)],
    "erfinv.edges": [(at(-1.0, 1.0, 0.0, 2.0, nan, 0.9999999),), lambda t, x: t.erfinv(x)],
    "gamma": [(E[1:-1],), lambda t, x: (
        t.lgamma(x.detach()), x.detach()[3:].digamma(), t.polygamma(1, x.detach()[3:7]))],
    "gamma.gradients": [(P * 9 - 1.05,), lambda t, x: (t.lgamma(x), x.digamma(), x.lgamma() * 2)],
    "exp2": [(F,), lambda t, x: t.exp2(x)],
    "exp2.int": [(J,), lambda t, x: t.exp2(x)],
    "logit": [(P,), lambda t, x: t.logit(x)],
    "logit.eps": [(at(0.0, 0.5, 1.0),), lambda t, x: x.logit(1e-3)],
    "xlogy": [(E[2:-1], at(0.0, 0.0, 2.0, 0.5, 3.0, 1.0, 2.0)), lambda t, x, y: t.xlogy(x, y.detach())],
    "xlogy.scalar": [(P,), lambda t, x: (t.xlogy(2, x), t.xlogy(x, 3.0))],
    "xlogy.int": [(J,), lambda t, x: t.xlogy(x, 2)],
    "logaddexp2": [(F, V[:, None]), lambda t, x, y: t.logaddexp2(x, y)],
    "ldexp": [(V, at(2.0, -3.0, 0.5)), lambda t, x, y: t.ldexp(x, y)],
    "sinc": [(E[1:7],), lambda t, x: t.sinc(x)],
    "signbit": [(E,), lambda t, x: t.signbit(x)],
    "signbit.int": [(J,), lambda t, x: x.signbit()],
    "copysign": [(V, W), lambda t, x, y: (t.copysign(x, y), t.copysign(x, -2), t.copysign(x, -0.0))],
    "copysign.int": [(J,), lambda t, x: t.copysign(x, -1.0)],
    "heaviside": [(E[:-1], np.full(9, 0.5)), lambda t, x, y: t.heaviside(x.detach(), y.detach())],
    "isposinf": [(E,), lambda t, x: (t.isposinf(x), t.isneginf(x), t.isreal(x))],
    "rsub": [(V, W), lambda t, x, y: (t.rsub(x, y), t.rsub(x, y, alpha=2))],
    "gcd": [(I, at(6, 4, 0, -2)), lambda t, x, y: (t.gcd(x, y), t.lcm(x, y))],
    "sgn": [(E[:-1],), lambda t, x: x.detach().sgn()],
    # --- reductions
    "aminmax": [(F,), lambda t, x: (*t.aminmax(x), *x.aminmax(dim=1), *t.aminmax(x, dim=0, keepdim=True))],
    "std_mean": [(F,), lambda t, x: (*t.std_mean(x), *t.std_mean(x, 1), *t.std_mean(x, dim=0, keepdim=True))],
    "nansum": [(N,), lambda t, x: (t.nansum(x), x.nansum(1), t.nansum(x, 0, True))],
    "nansum.int": [(I,), lambda t, x: t.nansum(x)],
    "nanmean": [(N,), lambda t, x: (t.nanmean(x), x.nanmean(1), t.nanmean(x, 0, True))],
    "nanmedian": [(N,), lambda t, x: (t.nanmedian(x), *x.nanmedian(1), *t.nanmedian(x, 0, True))],
    "kthvalue": [(F,), lambda t, x: (*t.kthvalue(x, 2), *x.kthvalue(1, dim=0), *t.kthvalue(x, 3, 1, True))],
    "kthvalue.0d": [(at(3.0)[0],), lambda t, x: (*t.kthvalue(x, 1), *t.mode(x))],
    "mode": [(I,), lambda t, x: (*t.mode(x), *x.mode(0), *t.mode(x, 1, True))],
    "quantile": [(F,), lambda t, x: (t.quantile(x, 0.3), x.quantile(0.75, 1), t.quantile(x, 0.5, 0, True),
                                      t.quantile(x, 0.5, keepdim=True))],
    "quantile.several": [(F, at(0.0, 0.35, 1.0)), lambda t, x, q: (t.quantile(x, q.detach()),
        x.quantile(q.detach(), dim=1),
                                                                  t.quantile(x, q.detach(), dim=0, keepdim=True))],
    "quantile.how": [(F,), lambda t, x: tuple(t.quantile(x, q, 1, interpolation=how) for q in (0.2, 0.5)
                                               for how in ("lower", "higher", "midpoint", "nearest"))],
    "quantile.nan": [(N,), lambda t, x: (x.quantile(0.5, 1), x.nanquantile(0.5, 1), t.nanquantile(x, 0.4, 0))],
    "bincount": [(I[0],), lambda t, x: (t.bincount(x), x.bincount(minlength=9))],
    "bincount.weights": [(I[0], F[0]), lambda t, x, w: t.bincount(x, w.detach())],
    "bincount.empty": [(I[0][:0],), lambda t, x: (t.bincount(x), t.bincount(x, minlength=2))],
    "histc": [(F,), lambda t, x: (t.histc(x.detach(), 5), x.detach().histc(4, -1, 1), t.histc(x.detach(), bins=3,
        min=0, max=1))],
    "histc.edge": [(at(0.8, 0.5, 2.0),), lambda t, x: t.histc(x.detach().float(), min=-1, max=2)],
    "histc.equal": [(at(0.8, 0.5, 2.0),), lambda t, x: t.histc(x.detach().float(), 4, min=3, max=3)],
    "cov": [(F,), lambda t, x: (t.cov(x), t.cov(x, correction=0), t.cov(x[0]), t.corrcoef(x), t.corrcoef(x[0]))],
    "cov.weights": [(F, at(1, 2, 1, 3), at(0.5, 1.0, 2.0, 1.0)), lambda t, x, f, a: (
        t.cov(x, fweights=f), t.cov(x, aweights=a.detach()), t.cov(x, fweights=f, aweights=a.detach()))],
    "msort": [(F,), lambda t, x: t.msort(x)],
    # --- scans
    "cummax": [(N,), lambda t, x: (*t.cummax(x, 1), *x.cummin(1), *t.cummin(x, dim=0))],
    "cummax.ties": [(I,), lambda t, x: (*t.cummax(x, 1), *x.cummin(0))],
    "logcumsumexp": [(F * 50,), lambda t, x: (t.logcumsumexp(x, 1), x.logcumsumexp(dim=0))],
    "diff": [(F, V[:, None]), lambda t, x, y: (t.diff(x), x.diff(2, 0), t.diff(x, prepend=y), t.diff(x, append=y,
        dim=1))],
    "diff.bool": [(B,), lambda t, x: t.diff(x)],
    "trapezoid": [(F,), lambda t, x: (t.trapezoid(x), t.trapz(x, dx=0.5), t.trapezoid(x, dim=0),
                                       t.cumulative_trapezoid(x, dx=2.0))],
    "trapezoid.x": [(F, at(0.0, 1.0, 1.5, 4.0)), lambda t, y, x: (t.trapezoid(y, x), t.cumulative_trapezoid(y, x))],
    # --- products
    "tensordot": [(M, M.transpose(2, 0, 1)), lambda t, a, b: (t.tensordot(a, b, 1), t.tensordot(a, b, ([0, 2],
        [1, 0])))],
    "inner": [(F, M), lambda t, a, b: (t.inner(a, b), t.inner(a, a[0, 0]))],
    "kron": [(F, P), lambda t, a, b: (t.kron(a, b), t.kron(a[0], b))],
    "ger": [(V, W), lambda t, a, b: (t.ger(a, b), t.vdot(a, b))],
    "add_products": [(F[:, :3], P.T, P), lambda t, i, a, b: (
        t.addmv(i[0], i, a[:, 0], beta=0.5, alpha=2), t.addr(i, i[0], i[1]), t.addmm(i, a, b, beta=2),
        t.baddbmm(i, a.unsqueeze(0), b.unsqueeze(0), alpha=3), t.addbmm(i, a.expand(2, 3, 2), b.expand(2, 2, 3)))],
    "matrix_power": [(F[:, :3],), lambda t, a: tuple(t.matrix_power(a, n) for n in (0, 1, 2, 5))],
    "chain_matmul": [(F, F.T, P.T), lambda t, a, b, c: t.linalg.multi_dot([a, b, c])],
    "linalg.norms": [(F, M + F), lambda t, a, b: (
        t.linalg.norm(a), t.linalg.vector_norm(b, 3, dim=(0, 2)), t.linalg.vector_norm(b, inf), t.linalg.norm(a,
        dim=1),
        t.linalg.norm(a, 1), t.linalg.norm(b, "fro", dim=(1, 2)), t.linalg.norm(a[0], 3), t.linalg.norm(a, 2, 0,
        True),
        *(t.linalg.matrix_norm(b, o, keepdim=k) for o in ("fro", "nuc", 1, -1, inf, -inf, 2, -2) for k in (False,
        True)))],
    "linalg.solve": [(G, F.T[:3], V), lambda t, a, b, c: (
        t.linalg.solve(a, b), t.linalg.solve(a, c), t.linalg.solve(a.expand(2, 3, 3), b), t.linalg.solve(a,
        b.mT[:2, :3], left=False),
        t.linalg.solve_triangular(a, b, upper=True), t.linalg.solve_triangular(a, b, upper=False,
        unitriangular=True))],
    "linalg.inv": [(G,), lambda t, a: (t.linalg.inv(a), t.linalg.det(a), *t.linalg.slogdet(a), t.logdet(a @ a.mT),
                                       t.inverse(a), a.det(), a.inverse(), t.linalg.matrix_power(a, -2),
        a.logdet())],
    "linalg.det.singular": [(np.outer(V, W),), lambda t, a: t.linalg.det(a)],
    "linalg.cholesky": [(G,), lambda t, a: (t.linalg.cholesky(a @ a.mT), t.linalg.cholesky(a @ a.mT, upper=True))],
    "linalg.qr": [(F.T,), lambda t, a: t.linalg.qr(a)],
    "linalg.eigh": [(G,), lambda t, a: (lambda r: (r[0], r[1] ** 2))(t.linalg.eigh(a @ a.mT))],
    "linalg.svd": [(F,), lambda t, a: (lambda r: (r[0] ** 2, r[1], r[2] ** 2))(t.linalg.svd(a,
        full_matrices=False))],
    "linalg.svd.tall": [(F.T,), lambda t, a: (lambda r: (r[0] ** 2, r[1], r[2] ** 2))(t.linalg.svd(a,
        full_matrices=False))],
    "linalg.pinv": [(F,), lambda t, a: (t.linalg.pinv(a), t.linalg.matrix_rank(a), t.linalg.cond(a),
        t.linalg.cond(a[:, :3].detach(), 1),
                                        t.linalg.svdvals(a))],
    "linalg.lstsq": [(F.T, M[0].T), lambda t, a, b: t.linalg.lstsq(a, b).solution],
    "linalg.products": [(F, M[0]), lambda t, a, b: (t.linalg.vecdot(a, b[:1]), t.linalg.multi_dot([a[0], b.mT, b,
        a[1]]))],
    "block_diag": [(F, V, P), lambda t, a, b, c: (t.block_diag(a, b, c), t.block_diag(b))],
    "cdist": [(F, F[1:] * 0.9 + P[:, :1]), lambda t, a, b: (t.cdist(a, b), t.cdist(a, b, p=1.0), t.cdist(a, b, p=3),
                                                 t.cdist(a, b, p=inf), t.cdist(a, b, 0))],
    "cdist.same": [(F,), lambda t, a: t.cdist(a, a)],
    "cdist.large": [(X1, X1[:4] + 1), lambda t, a, b: t.cdist(a, b)],
    "cdist.batch": [(M, M[:, :2] * 2), lambda t, a, b: (t.cdist(a, b), t.cdist(a[0], b))],
    "pdist": [(F,), lambda t, a: (t.pdist(a), t.pdist(a, 1))],
    "renorm": [(F,), lambda t, a: (t.renorm(a, 2, 0, 1.0), a.renorm(1, 1, 2.0))],
    # --- arranging
    "atleast": [(at(2.0)[0], V, F), lambda t, a, b, c: (t.atleast_1d(a), *t.atleast_2d(a, b, c),
        *t.atleast_3d((a, b, c)))],
    "stacks": [(V, W, F[:, :3]), lambda t, a, b, c: (t.column_stack((a, b, c)), t.row_stack((a, c)), t.dstack((a,
        b)),
                                                   t.dstack([c, c]))],
    "tensor_split": [(M,), lambda t, x: (*t.tensor_split(x, 3, 2), *x.tensor_split((1, 2), dim=1),
        *t.tensor_split(x, 5, 2), *t.tensor_split(x, indices=(-1,), dim=-1), *x.tensor_split(sections=2))],
    "splits": [(M,), lambda t, x: (*t.hsplit(x, 3), *t.vsplit(x, [1]), *x.dsplit(2), *t.hsplit(x[0, 0], 2),
                                   *t.split_with_sizes(x, [1, 2], 1))],
    "diag_embed": [(F,), lambda t, x: (t.diag_embed(x), x.diag_embed(1, 0, 2), t.diagflat(x), x.diagflat(-1))],
    "triangles": [(V,), lambda t, x: (t.tril_indices(3, 4), t.triu_indices(3, 3, 1), t.tril_indices(2, 3, -1,
        dtype=t.int32))],
    "rot90": [(M,), lambda t, x: tuple(t.rot90(x, k, d) for k in (-1, 0, 1, 2, 3, 4) for d in ([0, 1], [1, 2],
        [2, 0]))],
    "cartesian_prod": [(V, W[:2]), lambda t, a, b: (t.cartesian_prod(a, b), t.cartesian_prod(a), t.combinations(a),
        t.combinations(a, 3), t.combinations(a, 2, True), t.combinations(a, r=4))],
    "vander": [(V,), lambda t, x: (t.vander(x.detach()), t.vander(x.detach(), 2, increasing=True))],
    "unravel_index": [(I,), lambda t, x: t.unravel_index(x, (4, 3))],
    # --- placing
    "slice_scatter": [(F, P.T[:, :1]), lambda t, x, s: (t.slice_scatter(x, s, 1, 2, 3),
        x.slice_scatter(s[:2].expand(2, 4), 0, 0, None, 2))],
    "select_scatter": [(F, V), lambda t, x, s: t.select_scatter(x, s, 1, -1)],
    "diagonal_scatter": [(F, V), lambda t, x, s: (t.diagonal_scatter(x, s), t.diagonal_scatter(x, s, 1))],
    "masked_scatter": [(F, B, M), lambda t, x, m, s: (t.masked_scatter(x, m, s), x.masked_scatter(m[0], s))],
    "scatter_reduce": [(F, S, -F[1:, :3] * 1.5), lambda t, x, i, s: tuple(
        t.scatter_reduce(x, d, i, s, r, include_self=k) for d in (0, 1) for r in ("sum", "prod", "mean", "amax",
        "amin")
        for k in (True, False))],
    "scatter_reduce.ties": [(V * 0, at(0, 0, 0, 1), at(2.0, 2.0, 1.0, 0.0)), lambda t, x, i, s: (
        t.scatter_reduce(x, 0, i, s, "amax"), x.scatter_reduce(0, i, s, "prod", include_self=False),
        x.scatter_reduce(0, i, s, "amin"))],
    "scatter_reduce.int": [(J, at(0, 0, 2, 2), at(3, 5, -7, 4)), lambda t, x, i, s: tuple(
        x.scatter_reduce(0, i, s, r) for r in ("sum", "prod", "mean", "amax", "amin"))],
    "index_reduce": [(F, at(2, 0, 2), F * 0.5 - 1), lambda t, x, i, s: tuple(
        t.index_reduce(x, 0, i, s, r, include_self=k) for r in ("prod", "mean", "amax",
        "amin") for k in (True, False))],
    "put": [(F, S, P), lambda t, x, i, s: (t.put(x, i, s), x.put(i, s, accumulate=True))],
    "index_put": [(F, at(0, 2, 0), at(1, 1, 1), V), lambda t, x, i, j, v: (
        t.index_put(x, (i, j), v, accumulate=True), x.index_put((i,), v.mean()))],
    # --- order
    "unique.dim": [(I[[1, 0, 1, 2, 0]],), lambda t, x: (*t.unique(x, dim=0, return_inverse=True,
        return_counts=True),
                                                        t.unique(x, dim=1))],
    "unique_consecutive": [(at(1, 1, 2, 2, 3, 1, 1),), lambda t, x: (
        *t.unique_consecutive(x, return_inverse=True, return_counts=True), x.unique_consecutive())],
    "unique_consecutive.dim": [(I[[1, 1, 0, 0, 0, 2]],), lambda t, x: t.unique_consecutive(x,
        return_inverse=True, return_counts=True, dim=0)],
    "isin": [(I, J), lambda t, x, y: (t.isin(x, y), t.isin(x, 1), t.isin(2, x), t.isin(x, t.arange(1, 40, 3)),
                                      t.isin(x, y, invert=True))],
    "isin.float": [(N,), lambda t, x: t.isin(x, t.arange(30).to(x.dtype) / 2)],
    "repeat_interleave": [(F, at(2, 0, 3)), lambda t, x, n: (t.repeat_interleave(x, n, 0), t.repeat_interleave(n),
        x.repeat_interleave(n, dim=0, output_size=5), t.repeat_interleave(x, 2), t.repeat_interleave(x,
        t.tensor([2]), 1))],
    # --- arguments in PyTorch's other forms
    "unbiased": [(F,), lambda t, x: (x.var(True), x.std(False), *t.var_mean(x, False), *t.std_mean(x, True), x.var(0,
        False), t.var(x, unbiased=False))],
    "norm.nuc": [(F, M + F), lambda t, x, y: (t.norm(x, "nuc"), x.norm("nuc", (1, 0)), t.norm(y, "nuc", (1, 2), True))],
    "norm.empty": [(F[:0],), lambda t, x: (t.norm(x), t.norm(x, math.inf, 1), t.linalg.matrix_norm(x, "nuc"),
        t.linalg.norm(x, 2), t.linalg.matrix_norm(x, 1, keepdim=True), t.linalg.norm(x, -1))],
    "gather.0d": [(np.array(1.5), np.array(0), V), lambda t, x, i, v: (t.gather(x, 0, i), x.gather(0, i[None]),
        v.gather(0, i))],
    "gather.empty": [(V, S[:0]), lambda t, x, i: x.gather(0, i)],
    "take_along_dim.flat": [(F, I % 3), lambda t, x, i: t.take_along_dim(x, i)],
    "index.0d": [(np.array(2.5), np.array(0), np.array(-1.5)), lambda t, x, i, s: (x.index_add(0, i, s, alpha=2),
        x.index_copy(0, i, s),
        x.index_fill(0, i, 7.5), x.index_fill(0, i, s), x.index_reduce(0, i, s, "amax"))],
    "index_fill.tensor": [(F, at(1, 2, 1), np.array(2.5)), lambda t, x, i, v: (x.index_fill(0, i, v), x.index_fill(1,
        i, 2))],
    "index_add.0d.in_place": [(np.array(0),), lambda t, i: t.tensor(2.5).index_add_(0, i, t.tensor(0.25))],
    "masked_fill.conversions": [(B, I), lambda t, m, x: (m.masked_fill(m, 10), m.masked_fill(~m, 0.5), x.masked_fill(m,
        2.7), x.to(t.uint8).masked_fill(m, -1), x.masked_fill(m, t.tensor(-2.7)), m.masked_fill(~m, t.tensor(2)))],
    "arange.cut_off": [(), lambda t: (t.arange(0.0, -8.000001, -4.0, dtype=t.int64), t.arange(1.5, 5.7, 2.6,
        dtype=t.int64), t.arange(0.0, 1.0, 0.25, dtype=t.int32), t.arange(1, 5.5, 2))],
    "spaced.integers": [(), lambda t: (t.linspace(4.3, -3, 5, dtype=t.int64), t.logspace(0, 3.9, 4, dtype=t.int64),
        t.linspace(t.tensor(-2.0), t.tensor(1), 7, dtype=t.float64))],
    "square.bool": [(B,), lambda t, x: (x.square(), t.square(x), x.sum_to_size(1, 4))],
    "cut_off": [(I[:2, :2], J[:2], I[:1, :2]), lambda t, x, v, w: (t.addmm(x, x, x, beta=0.6, alpha=1.7), t.addmv(v, x,
        v, beta=2.6, alpha=0.2), t.baddbmm(x[None], x[None], x[None], beta=1.6, alpha=-1.2), t.addbmm(x, x[None],
        x[None], beta=0.2), t.addr(x, v, v, beta=2, alpha=3))],
    "addr.bool": [(B[:, :3], B[0, :3]), lambda t, x, v: (t.addr(x, v, v, beta=3, alpha=2), t.addr(x, v, v, beta=0))],
    "broadcast_shapes.int": [(), lambda t: t.zeros(t.broadcast_shapes((5, 1), 3, (1,)))],
    "diff.none": [(F, P), lambda t, x, y: (t.diff(x, 0, 0, x, x), x.diff(n=0))],
    "cov.one_variable": [(F[:1], I[0], at(0.5, 0.1, 0.9, 0.2)), lambda t, x, n, w: (x.cov(), x.corrcoef(), t.cov(x,
        fweights=n, aweights=w))],
    "quantile.q": [(F, at(0.2, 0.75)), lambda t, x, q: (x.quantile(q), t.nanquantile(x, q, 1), t.quantile(x, q, 0,
        interpolation="midpoint"))],
    "tensordot.broadcast": [(M, M[:1, :, :1]), lambda t, x, y: (t.tensordot(x, y, ([0, 1], [2, 1])), t.tensordot(y, x,
        ([0, 2], [0, 1])))],
    "converted.format": [(F,), lambda t, x: tuple(getattr(x.detach(), n)(memory_format=t.contiguous_format) for n in (
        "float", "double", "half", "long", "int", "short", "char", "bool"))],
    "unique.empty_dim": [(I[:0],), lambda t, x: t.unique(x, dim=0, return_inverse=True, return_counts=True)],
    "tensordot.dims": [(B, B), lambda t, x, y: t.tensordot(x * 1.0, y.mT * 1.0, t.tensor([1]))],
    "unravel_index.small": [(np.array([3, 5], np.uint8),), lambda t, i: t.unravel_index(i, (300, 4))],
    "unravel_index.0d": [(np.array(0),), lambda t, i: t.tensor(len(t.unravel_index(i, ())))],
    "special.bool": [(B,), lambda t, x: (t.special.entr(x), (t.special.ndtr(x) * 1000).int(), (t.logsumexp(x, (0,
        1)) * 1000).int())],
    "pinv.rank": [(G[:, :2], G[:, 1:]), lambda t, x, y: (t.linalg.pinv(x @ y.mT), t.linalg.pinv(x),
        t.linalg.pinv(x.mT))],
    "tolerances": [(np.stack([G @ G.T, np.ones((3, 3))]), at(1.5, 0.1)), lambda t, x, r: (t.linalg.matrix_rank(x,
        rtol=r),
        t.linalg.matrix_rank(x.detach(), atol=r), t.linalg.matrix_rank(x, hermitian=True), t.linalg.pinv(x.detach(),
        hermitian=True))],
    "norm.values_alone": [(np.eye(3)[:, :2], np.zeros((2, 2))), lambda t, x, y: (t.linalg.norm(x, "nuc"),
        t.linalg.norm(y,
        2))],
    # --- found by tests/fuzz
    "polygamma": [(P * 5 - 2.1,), lambda t, x: (t.polygamma(2, x), t.polygamma(3, x))],
    "cross.default": [(np.ones((3, 3)) * V, F[:, :3]), lambda t, x, y: (t.cross(x, y), t.linalg.cross(x, y))],
    "linalg.diagonal": [(M,), lambda t, x: (t.linalg.diagonal(x), t.linalg.diagonal(x, offset=1, dim1=0, dim2=2))],
    "vander.int": [(J,), lambda t, x: (t.vander(x), t.vander(x.to(t.int8)), t.vander(x > 0))],
    "einsum.int": [(S,), lambda t, x: [
        t.einsum(e, x.to(t.int32)) for e in ("ij->j", "ij->", "ij->ji")]],
    "einsum.bool": [(B,), lambda t, x: (t.einsum("ij,jk->kij", x, x.T), t.einsum("ij->j", x))],
    "xlog1py.number": [(P,), lambda t, x: (t.special.xlog1py(x, 2.0), t.special.xlog1py(0.5, x))],
    "movedim.0d": [(at(3.0)[0],), lambda t, x: (x.movedim(0, 0), t.moveaxis(x, -1, 0), x.adjoint())],
    "broadcast_to.-1": [(F,), lambda t, x: (x.broadcast_to((2, -1, 4)), x[:, None].broadcast_to((-1, 2, -1)))],
    "all.no_dim": [(S,), lambda t, x: (x.all(dim=()), t.any(x, dim=()), x.all(dim=[], keepdim=True))],
    "alpha.promotes": [(I,), lambda t, x: (
        t.sub(x, x.to(t.int8), alpha=100), t.rsub(x.to(t.int8), x, alpha=100),
        x.clone().add_(x.to(t.int8), alpha=100))],
    "addcmul.dtype": [(I, F), lambda t, x, y: (
        t.addcmul(y.to(t.float16) * 0, x, x, value=0.5), t.addcmul(x, x.to(t.int8), x.to(t.int8), value=100),
        t.addcdiv(y.detach(), y.to(t.float32).detach(), x.to(t.int16), value=0.1))],
    "median.empty": [(np.zeros((0, 2)),), lambda t, x: (x.median(), t.nanmedian(x))],
    "fmod.bool": [(B, F), lambda t, x, y: (
        t.fmod(y, x | True), t.fmod(x, 2), t.hypot(y, x), t.fmod(x.to(t.int16) * -32768, y.detach() + 9e4))],
    "atan2.bool": [(B, F), lambda t, x, y: t.atan2(y, x)],
    "clamp.mixed": [(F, F), lambda t, x, y: (
        t.clamp(x, y[0, 0].detach(), 1.1), t.clip(x, 0, y[2, 3].detach() + 1))],
    "copy_.number": [(F,), lambda t, x: t.empty_like(x).copy_(0.1)],
    "pow.mixed": [(P,), lambda t, x: (x.detach() * 2).to(t.float16) ** x],
    "bilinear.empty": [(F, F), lambda t, x, y: t.bilinear(x, y, t.zeros(0, 4, 4, dtype=t.float64))],
    "ravel": [(F,), lambda t, x: (x[0, ::2].ravel(), t.ravel(x.T), x.ravel())],
    "tensordot.uint8": [(I[:, :1], I), lambda t, x, y: t.tensordot(x.to(t.uint8), y.to(t.uint8))],
    "ndtri": [(at(1e-300, 1e-20, 0.01, 0.3, 0.5, 0.7, 0.999),), lambda t, x: t.special.ndtri(x)],
}  # fmt: skip


def run(t, arrays, line, requires_grad):
    made = []
    for a in arrays:
        x = t.tensor(np.array(a))
        made.append(x.requires_grad_() if requires_grad and x.dtype.is_floating_point else x)
    out = line(t, *made)
    return made, list(out) if isinstance(out, tuple | list) else [out]


def compare(got, want, what):
    if not isinstance(want, torch.Tensor):
        assert got == want, what
        return
    assert str(got.dtype).split(".")[1] == str(want.dtype).split(".")[1], f"{what}: {got.dtype}, not {want.dtype}"
    assert tuple(got.shape) == tuple(want.shape), f"{what}: {tuple(got.shape)}, not {tuple(want.shape)}"
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), 1e-9, 1e-12, err_msg=what)


def his_gradient(result, floats):
    found = torch.autograd.grad(result.sum(), [q for _, q in floats], retain_graph=True, allow_unused=True)
    return torch.cat([q.reshape(-1) for q in found if q is not None] or [torch.zeros(0)])


@pytest.mark.parametrize("name", LINES)
def test_values_and_gradients(name):
    arrays, line = LINES[name]
    ours, got = run(norch, arrays, line, True)
    theirs, want = run(torch, arrays, line, True)
    assert len(got) == len(want)
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        compare(a, b, f"{name}, result {i}")
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if not b.requires_grad or not b.numel():
            continue
        weights = np.linspace(0.5, 1.5, b.numel()).reshape(tuple(b.shape))
        floats = [(p, q) for p, q in zip(ours, theirs, strict=True) if q.requires_grad]
        if not a.requires_grad:  # a constant, whose gradient is 0
            assert not his_gradient(b, floats).any(), f"{name}, result {i}: no gradient"
            continue
        mine = norch.autograd.grad(
            a, [p for p, _ in floats], norch.tensor(weights), retain_graph=True, allow_unused=True
        )
        his = torch.autograd.grad(
            b, [q for _, q in floats], torch.tensor(weights), retain_graph=True, allow_unused=True
        )
        for p, q in zip(mine, his, strict=True):
            # Where the result is NaN PyTorch differs with itself about the gradient.
            if q is not None and not b.isnan().any() and not q.isnan().any() and (p is not None or q.abs().sum() > 0):
                np.testing.assert_allclose(p.numpy(), q.numpy(), 1e-8, 1e-10, err_msg=f"{name}, gradient of result {i}")
