"""Matrices: factors, solutions, sparse ones."""

from __future__ import annotations

from typing import Any

from .inputs import Op, sources


def rows(op: Op, lib: Any, device: str) -> None:
    normal, _, integers = sources(lib, device)
    op("inv 64x64", lib.linalg.inv, lambda: normal(256, 64, 64) + 8 * lib.eye(64, device=device))
    op(
        "solve 64",
        lib.linalg.solve,
        lambda: normal(256, 64, 64) + 8 * lib.eye(64, device=device),
        lambda: normal(256, 64, 1),
    )
    op(
        "cholesky 1024",
        lib.linalg.cholesky,
        lambda: (lambda a: a @ a.T + 1024 * lib.eye(1024, device=device))(normal(1024, 1024)),
    )
    op(
        "triangular solve",
        lambda a, b: lib.linalg.solve_triangular(a, b, upper=False),
        lambda: normal(1024, 1024).tril() + 32 * lib.eye(1024, device=device),
        lambda: normal(1024, 64),
    )
    op("qr 512x64", lambda a: lib.linalg.qr(a)[0], lambda: normal(16, 512, 64))
    op("svd 64", lambda a: lib.linalg.svdvals(a), lambda: normal(16, 64, 64))
    op("eigh 64", lambda a: lib.linalg.eigvalsh(a), lambda: (lambda a: a + a.mT)(normal(16, 64, 64)))
    op("det 3x3", lib.linalg.det, lambda: normal(65536, 3, 3))
    op("matrix_exp", lib.matrix_exp, lambda: normal(64, 16, 16) * 0.1)
    op(
        "lstsq",
        lambda a, b: lib.linalg.lstsq(a, b)[0],
        lambda: normal(16, 256, 32),
        lambda: normal(16, 256, 4),
        grad=False,
    )
    op("pinv", lib.linalg.pinv, lambda: normal(16, 64, 32), grad=False)
    op("cross", lambda a, b: lib.linalg.cross(a, b), lambda: normal(1 << 18, 3), lambda: normal(1 << 18, 3))
    op(
        "sparse mm",
        lambda a, b: lib.sparse.mm(a, b),
        lambda: lib.sparse_coo_tensor(integers(10000, 2, 100000), normal(100000), (10000, 10000)).coalesce(),
        lambda: normal(10000, 128),
        grad=False,
    )
    op(
        "csr mm",
        lambda a, b: a @ b,
        lambda: (
            lib.sparse_coo_tensor(integers(10000, 2, 100000), normal(100000), (10000, 10000)).coalesce().to_sparse_csr()
        ),
        lambda: normal(10000, 128),
        grad=False,
    )
    op(
        "csr mv",
        lambda a, b: a @ b,
        lambda: (
            lib.sparse_coo_tensor(integers(10000, 2, 100000), normal(100000), (10000, 10000)).coalesce().to_sparse_csr()
        ),
        lambda: normal(10000),
        grad=False,
    )
    op(
        "sparse mul",
        lambda a: a * a,
        lambda: lib.sparse_coo_tensor(integers(10000, 2, 100000), normal(100000), (10000, 10000)).coalesce(),
        grad=False,
    )
    op(
        "combinations meshgrid",
        lambda a, b: (lambda g: g[0] * g[1])(lib.meshgrid(a, b, indexing="ij")),
        lambda: normal(1024),
        lambda: normal(1024),
    )
    op("cartesian triu", lambda: lib.triu_indices(1024, 1024, device=device), grad=False)
    op("bernoulli mask mul", lambda x: x * (lib.rand_like(x) > 0.1), lambda: normal(2048, 2048), grad=False)
    op(
        "histogram-eq cdf",
        lambda x: lib.zeros(16, 256, device=device).scatter_add_(1, x, lib.ones_like(x, dtype=lib.float32)).cumsum(-1),
        lambda: integers(256, 16, 65536),
        grad=False,
    )
    op("tensor.unfold", lambda x: x.unfold(-1, 400, 160) * 2, lambda: normal(16, 64000))
    op("as_strided sliding sum", lambda x: x.unfold(-1, 400, 160).sum(-1), lambda: normal(16, 64000))
