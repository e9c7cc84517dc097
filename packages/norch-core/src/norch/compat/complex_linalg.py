"""Decompositions of complex matrices, by NumPy on the host, and what is made of them; with derivatives.

The gradient of a loss with respect to a pair has the derivatives by its real and its imaginary parts, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from .. import linalg
from ..autograd import Function, is_grad_enabled, no_grad
from ..errors import AutogradError, DTypeError, ShapeError
from ..linalg import lapack
from ..linalg.host import on_host
from ..ops import eye, isinf, where
from ..tensor import Tensor
from .complex_numbers import ComplexPair, joined

_FREEDOM = 1e-2
"""The size from which on a gradient counts as one of the phase of vectors, as in PyTorch."""


def recorded(name: str, compute: Callable[..., Any], gradient: Callable[..., Any]) -> Callable[..., Any]:
    """`compute` of a pair of matrices with the derivative `gradient(a, *results, *grads)`."""

    def forward(ctx: Any, a: ComplexPair) -> Any:
        found = compute(a)
        ctx.save_for_backward(a, *(found if isinstance(found, tuple) else (found,)))
        return found

    def backward(ctx: Any, *grads: Any) -> Any:
        return gradient(*ctx.saved_tensors, *grads)

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward), "over_batches": True}
    apply: Callable[..., Any] = type(f"linalg_{name}", (Function,), methods).apply  # type: ignore[attr-defined]

    def call(a: ComplexPair) -> Any:
        if a.requires_grad and is_grad_enabled():
            return apply(a)
        with no_grad():
            return compute(a)

    return call


def _differentiable(name: str, routine: Callable[..., Any], gradient: Callable[..., Any]) -> Callable[..., Any]:
    """`routine` of an array of complex matrices as a function of a pair."""
    return recorded(name, lambda a: on_host(name, routine, a), gradient)


def check_pairs(op: str, a: Any, square: bool = True) -> None:
    if a.ndim < 2 or (square and a.shape[-1] != a.shape[-2]):
        raise ShapeError(f"linalg.{op}(): expected {'square ' * square}matrices, got shape {tuple(a.shape)}")
    if a.pair.dtype.itemsize < 4:
        raise DTypeError(f"linalg.{op}(): expected complex64 or complex128, got {a.dtype}")


def one(n: int, like: Tensor) -> Tensor:
    return eye(n, dtype=like.dtype, device=like.device)


def _off_diagonal(differences: Tensor) -> Tensor:
    """1 / differences, 0 on the diagonal."""
    on = one(differences.shape[-1], differences) == 1
    return where(on, 0.0, 1 / where(on, 1.0, differences))


def _times(numerator: ComplexPair, factor: Tensor) -> ComplexPair:
    """Their product, but 0 where it would be 0 times infinity; linear in the numerator where the factor is finite."""
    endless = isinf(factor)
    return joined(*[part * where((part == 0) & endless, 0.0, factor) for part in (numerator.real, numerator.imag)])


def _diagonal(values: Tensor) -> Tensor:
    return values.unsqueeze(-1) * one(values.shape[-1], values)


def _refuse_phases(op: str, turns: Tensor) -> None:
    """Of how much each vector's gradient turns it."""
    if turns.numel() and turns.detach().abs().amax().item() > _FREEDOM:
        raise AutogradError(
            f"linalg.{op}(): the gradient is one of the phase of vectors, which is arbitrary; what is differentiated "
            "must not depend on it"
        )


# --- Decompositions ---------------------------------------------------------------------------------------------------


def _eigh_gradient(a: Any, values: Tensor, vectors: Any, gl: Tensor, gv: Any) -> Any:
    """Boeddeker et al., "On the computation of complex-valued gradients" (2017)."""
    inner = vectors.mH @ gv
    _refuse_phases("eigh", inner.imag.diagonal(dim1=-2, dim2=-1))
    gaps = _off_diagonal(values.unsqueeze(-2) - values.unsqueeze(-1))
    out = vectors @ (_times(inner, gaps) + _diagonal(gl)) @ vectors.mH
    return (out + out.mH) * 0.5


_EIGH = {u: _differentiable("eigh", lapack.eigh[u == "U"], _eigh_gradient) for u in ("L", "U")}


def _eigh(A: ComplexPair, UPLO: str = "L") -> Any:
    check_pairs("eigh", A)
    UPLO = UPLO.upper()
    if UPLO not in _EIGH:
        raise ValueError(f"linalg.eigh(): UPLO must be 'L' or 'U', got {UPLO!r}")
    return import_module("norch.linalg.decompositions").Eigh(*_EIGH[UPLO](A))


def _svd_gradient(a: Any, u: Any, s: Tensor, vh: Any, gu: Any, gs: Tensor, gvh: Any) -> Any:
    """Wan and Zhang, "Automatic differentiation for complex valued SVD" (2019)."""
    v, gv = vh.mH, gvh.mH
    left, right = u.mH @ gu, v.mH @ gv
    left, right = left - left.mH, right - right.mH
    turns = left.imag.diagonal(dim1=-2, dim2=-1)
    _refuse_phases("svd", (turns + right.imag.diagonal(dim1=-2, dim2=-1)) / 2)
    squares = s * s
    gaps = _off_diagonal(squares.unsqueeze(-2) - squares.unsqueeze(-1))
    inner = _times(left, gaps) * s.unsqueeze(-2) + _times(right, gaps) * s.unsqueeze(-1)
    turning = turns * where((turns == 0) & (s == 0), 0.0, 0.5 / s)
    inner = joined(inner.real + _diagonal(gs), inner.imag + _diagonal(turning))
    out = u @ inner @ vh
    if a.shape[-2] > a.shape[-1]:
        part = _times(gu, 1 / s.unsqueeze(-2))
        out = out + (part - u @ (u.mH @ part)) @ vh
    elif a.shape[-2] < a.shape[-1]:
        part = _times(gv, 1 / s.unsqueeze(-2)).mH
        out = out + u @ (part - (part @ v) @ vh)
    return out


def _full_svd_gradient(a: Any, u: Any, s: Tensor, vh: Any, gu: Any, gs: Tensor, gvh: Any) -> Any:
    k = s.shape[-1]
    return _svd_gradient(a, u[..., :k], s, vh[..., :k, :], gu[..., :k], gs, gvh[..., :k, :])


_reduced_svd = _differentiable("svd", lapack.svd[False], _svd_gradient)
_full_svd = _differentiable("svd", lapack.svd[True], _full_svd_gradient)


def svd(A: ComplexPair, full_matrices: bool = True, *, driver: Any = None) -> Any:
    check_pairs("svd", A, square=False)
    kind = import_module("norch.linalg.decompositions").SVD
    return kind(*(_full_svd if full_matrices and A.shape[-1] != A.shape[-2] else _reduced_svd)(A))


def _qr_gradient(a: Any, q: Any, r: Any, gq: Any, gr: Any) -> Any:
    """Walter, Lehmann and Lamour (2010), of a diagonal of R that is real but for what QR leaves of it."""
    rows = a.shape[-2]
    if rows < a.shape[-1]:  # those of the first columns say what Q is, and R of the others is Q.mH @ them
        others, g_others = a[..., rows:], gr[..., rows:]
        first = _qr_gradient(a[..., :rows], q, r[..., :rows], gq + others @ g_others.mH, gr[..., :rows])
        return import_module("norch").cat([first, q @ g_others], -1)
    m = (gr @ r.mH - q.mH @ gq).triu()
    inner = m + m.mH
    inner = joined(inner.real - one(r.shape[-1], inner.real) * m.real, inner.imag)
    return (gq + q @ inner) @ r.inverse().mH


_reduced_qr = _differentiable("qr", lambda x: tuple(np.linalg.qr(x)), _qr_gradient)


def _qr(A: ComplexPair, mode: str = "reduced") -> Any:
    check_pairs("qr", A, square=False)
    kind = import_module("norch.linalg.decompositions").QR
    if mode == "reduced" or (mode == "complete" and A.shape[-2] <= A.shape[-1]):
        return kind(*_reduced_qr(A))
    if mode not in ("complete", "r"):
        raise ValueError(f"linalg.qr(): mode must be 'reduced', 'complete' or 'r', got {mode!r}")
    if A.requires_grad and is_grad_enabled():
        raise AutogradError(f"linalg.qr(): mode {mode!r} has no derivative; use mode='reduced' or detach()")
    if mode == "r":
        return kind(A.flatten()[:0].clone(), on_host("qr", lambda x: np.linalg.qr(x, "r"), A))  # type: ignore[arg-type]
    return kind(*on_host("qr", lambda x: tuple(np.linalg.qr(x, "complete")), A))  # type: ignore[arg-type]


def _cholesky_gradient(a: Any, factor: Any, g: Any) -> Any:
    """Murray, "Differentiation of the Cholesky decomposition" (2016)."""
    inner = (factor.mH @ g).tril()
    inner = inner - inner * (one(g.shape[-1], inner.real) * 0.5)
    under = factor.inverse()
    return under.mH @ ((inner + inner.mH) * 0.5) @ under


_lower = _differentiable("cholesky", np.linalg.cholesky, _cholesky_gradient)


def _cholesky(A: ComplexPair, *, upper: bool = False) -> Any:
    check_pairs("cholesky", A)
    factor = _lower(A)
    return factor.mH if upper else factor


def _eig_gradient(a: Any, values: Any, vectors: Any, g_values: Any, g_vectors: Any) -> Any:
    """Boeddeker et al. (2017), for eigenvectors of length 1."""
    inner = vectors.mH @ g_vectors
    _refuse_phases("eig", inner.imag.diagonal(dim1=-2, dim2=-1))
    length = inner.real.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
    inner = inner - (vectors.mH @ vectors) * length
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
    on = one(a.shape[-1], inner.real) == 1
    size = where(on, 1.0, gaps.real.square() + gaps.imag.square())
    divided, turned = _times(inner, gaps.real / size), _times(inner, gaps.imag / size)
    summed = joined(
        where(on, g_values.real.unsqueeze(-2), divided.real - turned.imag),
        where(on, g_values.imag.unsqueeze(-2), divided.imag + turned.real),
    )
    return vectors.mH.inverse() @ summed @ vectors.mH


_eigen = _differentiable("eig", lapack.eig, _eig_gradient)


def _eig(A: ComplexPair) -> Any:
    check_pairs("eig", A)
    return import_module("norch.linalg.eigen").Eig(*_eigen(A))


# --- What is made of them ---------------------------------------------------------------------------------------------


def singular_values(A: ComplexPair, *, driver: Any = None) -> Tensor:
    check_pairs("svdvals", A, square=False)
    if A.requires_grad and is_grad_enabled():
        return svd(A, False).S  # type: ignore[no-any-return]
    return on_host("svdvals", lapack.svdvals, A)  # type: ignore[arg-type, no-any-return]


def _adjugate_times(a: Any, out: Any, g: Any) -> Any:
    return a.inverse().mH * (g * out.conj()).unsqueeze(-1).unsqueeze(-1)


_determinant = _differentiable("det", np.linalg.det, _adjugate_times)


def _det(A: ComplexPair) -> Any:
    check_pairs("det", A)
    return _determinant(A)


def _slogdet_gradient(a: Any, sign: Any, logabsdet: Tensor, g_sign: Any, g_log: Tensor) -> Any:
    turn = sign.real * g_sign.imag - sign.imag * g_sign.real
    return a.inverse().mH * joined(g_log, turn).unsqueeze(-1).unsqueeze(-1)


_sign_and_log = _differentiable("slogdet", lambda x: tuple(np.linalg.slogdet(x)), _slogdet_gradient)


def _slogdet(A: ComplexPair) -> Any:
    check_pairs("slogdet", A)
    return import_module("norch.linalg.solving").SLogDet(*_sign_and_log(A))


def _logdet(A: ComplexPair) -> ComplexPair:
    sign, log = _slogdet(A)
    return joined(log, sign.angle())


def matrix_norm(A: ComplexPair, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    if ord in (2, -2, "nuc"):
        matrix = A.movedim(tuple(dim), (-2, -1))
        values = singular_values(matrix)
        found = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
        for at in sorted(d % A.ndim for d in dim) if keepdim else ():
            found = found.unsqueeze(at)
        return found
    return linalg.matrix_norm(A.abs(), ord, dim, keepdim)


def _cond(A: ComplexPair, p: Any = None) -> Tensor:
    if p in (None, 2, -2):
        values = singular_values(A)
        return values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
    return matrix_norm(A, p) * matrix_norm(A.inverse(), p)


LINALG: dict[str, Callable[..., Any]] = {
    "eigh": _eigh, "eigvalsh": lambda A, UPLO="L": _eigh(A, UPLO).eigenvalues, "svd": svd, "svdvals": singular_values,
    "qr": _qr, "cholesky": _cholesky, "eig": _eig, "eigvals": lambda A: _eig(A).eigenvalues,
    "det": _det, "slogdet": _slogdet, "logdet": _logdet, "cond": _cond,
}  # fmt: skip
