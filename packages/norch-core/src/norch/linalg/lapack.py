"""NumPy's LAPACK in the precision of its operand: its public functions compute float32 as float64, twice as long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_ROUTINES = getattr(np.linalg, "_umath_linalg", None)


def _in_its_dtype(name: str, failure: str, public: Callable[[Any], Any], finite: bool = False) -> Callable[[Any], Any]:
    """The generalized ufunc `name`; `public` where NumPy has none for the dtype. finite: `public` gets
    infinities and NaN, which it refuses. Raises LinAlgError with `failure`."""
    routine = getattr(_ROUTINES, name, None)
    loops = {loop[0]: loop for loop in getattr(routine, "types", ()) if loop[0] in "fF"}

    def fail(*_: Any) -> None:
        raise np.linalg.LinAlgError(failure)

    def call(a: Any) -> Any:
        loop = loops.get(a.dtype.char)
        if routine is None or loop is None or not a.size or (finite and not np.isfinite(a).all()):
            return public(a)
        with np.errstate(all="ignore", call=fail, invalid="call"):
            return routine(a, signature=loop)

    return call


_EIGEN, _SVD = "Eigenvalues did not converge", "SVD did not converge"

eigh = {
    False: _in_its_dtype("eigh_lo", _EIGEN, lambda a: tuple(np.linalg.eigh(a, "L"))),
    True: _in_its_dtype("eigh_up", _EIGEN, lambda a: tuple(np.linalg.eigh(a, "U"))),
}
eigvalsh = {
    False: _in_its_dtype("eigvalsh_lo", _EIGEN, lambda a: np.linalg.eigvalsh(a, "L")),
    True: _in_its_dtype("eigvalsh_up", _EIGEN, lambda a: np.linalg.eigvalsh(a, "U")),
}
svd = {
    False: _in_its_dtype("svd_s", _SVD, lambda a: tuple(np.linalg.svd(a, full_matrices=False))),
    True: _in_its_dtype("svd_f", _SVD, lambda a: tuple(np.linalg.svd(a))),
}
svdvals = _in_its_dtype("svd", _SVD, lambda a: np.linalg.svd(a, compute_uv=False))
eig = _in_its_dtype("eig", _EIGEN, lambda a: tuple(np.linalg.eig(a)), finite=True)
eigvals = _in_its_dtype("eigvals", _EIGEN, np.linalg.eigvals, finite=True)
