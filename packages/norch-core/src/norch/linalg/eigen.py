"""Eigenvalues and eigenvectors of matrices that need not be symmetric: complex ones."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..autograd import is_grad_enabled
from ..errors import AutogradError
from ..ops import cat, eye, where
from . import lapack
from .decompositions import _times
from .host import check_matrices, differentiable, of_all_samples, on_host
from .solving import solve

if TYPE_CHECKING:
    from ..compat.complex_numbers import ComplexPair
    from ..tensor import Tensor

_FREEDOM = 1e-2
"""The size from which on a gradient counts as one of the phase of eigenvectors, as in PyTorch."""


def _pair(parts: Tensor) -> ComplexPair:
    pair: ComplexPair = import_module("norch.compat.complex_numbers").ComplexPair(parts)
    return pair


def _parts(found: Any, like: Any) -> Any:
    return np.stack([found.real, found.imag], -1).astype(like.dtype)


def _routine(a: Any) -> Any:
    values, vectors = lapack.eig(a)
    return _parts(values, a), _parts(vectors, a)


def _mul(x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The product of complex matrices; each is its real and its imaginary part."""
    return x[0] @ y[0] - x[1] @ y[1], x[0] @ y[1] + x[1] @ y[0]


def _gradient(a: Tensor, values: Tensor, vectors: Tensor, g_values: Tensor, g_vectors: Tensor) -> Tensor:
    """Boeddeker et al., "On the computation of complex-valued gradients with application to statistically optimum
    beamforming" (2017), for eigenvectors of length 1."""
    one = eye(a.shape[-1], dtype=a.dtype, device=a.device)
    (re, im), (g_re, g_im) = vectors.unbind(-1), g_vectors.unbind(-1)
    adjoint = re.mT, -im.mT
    inner = _mul(adjoint, (g_re, g_im))
    turned = of_all_samples(inner[1].detach() * one)
    if float(turned.abs().sum(-1).amax().item() if a.numel() else 0) > _FREEDOM:
        raise AutogradError(
            "linalg.eig(): the gradient is one of the phase of eigenvectors, which is arbitrary; what is "
            "differentiated must not depend on it"
        )
    length = (inner[0] * one).sum(-2, keepdim=True)
    gram = _mul(adjoint, (re, im))
    inner = inner[0] - gram[0] * length, inner[1] - gram[1] * length
    gaps = values.unsqueeze(-3) - values.unsqueeze(-2)
    diagonal = one == 1
    size = where(diagonal, 1.0, gaps.square().sum(-1))
    over_re, over_im = gaps[..., 0] / size, gaps[..., 1] / size
    divided = (
        _times(inner[0], over_re) - _times(inner[1], over_im),
        _times(inner[0], over_im) + _times(inner[1], over_re),
    )
    summed = [where(diagonal, g.unsqueeze(-2), d) for g, d in zip(g_values.unbind(-1), divided, strict=True)]
    right = _mul((summed[0], summed[1]), adjoint)
    # The adjoint's inverse times that, of which the real part is wanted: a real system of twice the size.
    system = cat([cat([adjoint[0], -adjoint[1]], -1), cat([adjoint[1], adjoint[0]], -1)], -2)
    return solve(system, cat(list(right), -2))[..., : a.shape[-1], :]


_eig = differentiable("eig", lambda a: on_host("eig", _routine, a), _gradient)


class Eig(NamedTuple):
    """What eig returns."""

    eigenvalues: ComplexPair
    eigenvectors: ComplexPair


def eig(A: Tensor) -> Eig:
    """(eigenvalues, eigenvectors) of real square matrices, as a `ComplexPair` each; the vectors in columns, of
    length 1. Their order and the phase of each vector are LAPACK's, which computes them on the host.

    Differentiable where the eigenvalues differ, the values alone wherever there is a basis of eigenvectors. The
    backward pass raises AutogradError for what depends on the phase of a vector, and LinAlgError without a basis.
    """
    check_matrices("eig", A)
    values, vectors = _eig(A)
    return Eig(_pair(values), _pair(vectors))


def eigvals(A: Tensor) -> ComplexPair:
    """The eigenvalues (..., n) of real matrices (..., n, n), a `ComplexPair`, as `eig` gives them. Raises as that
    does.
    """
    check_matrices("eigvals", A)
    if A.apply_function is not None or (A.requires_grad and is_grad_enabled()):
        return eig(A).eigenvalues
    return _pair(on_host("eigvals", lambda a: _parts(lapack.eigvals(a), a), A))
