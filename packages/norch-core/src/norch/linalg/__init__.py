"""Linear algebra: `norch.linalg`, with PyTorch's names. Loaded when it is first used.

Norms and products are made of ops, and run on any device. Decompositions (`cholesky`, `lu`, `qr`, `svd`, `eigh`) and
what rests on them (`det`, `inv`, `solve`, ...) are the backend's where it has them: norch-cpu has most, norch-cuda all
with cuSOLVER (`pip install norch-cuda[linalg]`). Otherwise NumPy's LAPACK computes them on the host: for tensors on the
CPU, and for others where `norch.set_cpu_fallback(True)` allows it. All are differentiable, twice too.

Shapes are (..., rows, columns). They raise ShapeError for what is not a matrix (a square one where
it must be), DTypeError unless float32 or float64, BackendError on a device that has neither them nor the
fallback, and LinAlgError where a matrix has no answer.

Arguments that mean the same in every function:

    A, B: such matrices. ord: which norm. UPLO: "L" or "U", the triangle of a symmetric matrix that is read.
    check_errors: whether the functions that end in _ex raise all the same.
"""

from __future__ import annotations

from ..dispatch.arguments import check_functions
from ..ops import matmul, matrix_power
from .decompositions import cholesky, eigh, eigvalsh, qr, svd, svdvals
from .eigen import eig, eigvals
from .exponential import matrix_exp
from .host import LinAlgError
from .least_squares import lstsq, matrix_rank, pinv
from .lu import lu, lu_factor, lu_solve
from .norms import cond, matrix_norm, norm, vector_norm
from .products import cross, diagonal, multi_dot, vecdot
from .solving import det, inv, logdet, slogdet, solve, solve_triangular
from .tensors import householder_product, tensorinv, tensorsolve, vander
from .unchecked import cholesky_ex, inv_ex, lu_factor_ex, solve_ex

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "logdet",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]


check_functions(globals(), "norch.")
