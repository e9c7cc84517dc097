"""Elements at places."""

from __future__ import annotations

from typing import Any

from .inputs import Op, sources


def rows(op: Op, lib: Any, device: str) -> None:
    normal, uniform, integers = sources(lib, device)
    op(
        "index_add",
        lambda x, i, v: x.index_add(0, i, v),
        lambda: normal(10000, 256),
        lambda: integers(10000, 200000),
        lambda: normal(200000, 256),
    )
    op("index_select", lambda x, i: x.index_select(0, i), lambda: normal(10000, 256), lambda: integers(10000, 200000))
    op(
        "index_put accumulate",
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        lambda: normal(10000),
        lambda: integers(10000, 200000),
        lambda: normal(200000),
    )
    op(
        "x[i, j]",
        lambda x, i, j: x[i, j],
        lambda: normal(1024, 1024),
        lambda: integers(1024, 200000),
        lambda: integers(1024, 200000),
    )
    op("x[:, i]", lambda x, i: x[:, i], lambda: normal(1024, 1024), lambda: integers(1024, 2048))
    op("x[mask]", lambda x, m: x[m], lambda: normal(2048, 2048), lambda: uniform(2048, 2048).gt(0.5))
    op("masked_fill", lambda x, m: x.masked_fill(m, 0), lambda: normal(2048, 2048), lambda: uniform(2048, 2048).gt(0.5))
    op(
        "masked_scatter",
        lambda x, m, v: x.masked_scatter(m, v),
        lambda: normal(2048, 2048),
        lambda: uniform(2048, 2048).gt(0.5),
        lambda: normal(2048, 2048),
    )
    op("nonzero", lambda x: x.nonzero(), lambda: uniform(2048, 2048).gt(0.9), grad=False)
    op("where", lambda x, y: lib.where(x > 0, x, y), lambda: normal(2048, 2048), lambda: normal(2048, 2048))
    op("gather dim 1", lambda x, i: x.gather(1, i), lambda: normal(4096, 1000), lambda: integers(1000, 4096, 500))
    op("gather one", lambda x, i: x.gather(1, i), lambda: normal(65536, 10), lambda: integers(10, 65536, 1))
    op(
        "scatter",
        lambda x, i, v: x.scatter(1, i, v),
        lambda: normal(4096, 1000),
        lambda: integers(1000, 4096, 500),
        lambda: normal(4096, 500),
    )
    op(
        "scatter_add",
        lambda x, i, v: x.scatter_add(1, i, v),
        lambda: normal(4096, 1000),
        lambda: integers(1000, 4096, 500),
        lambda: normal(4096, 500),
    )
    op(
        "scatter_add dim 0",
        lambda x, i, v: x.scatter_add(0, i, v),
        lambda: normal(10000, 64),
        lambda: integers(10000, 200000, 1).expand(-1, 64),
        lambda: normal(200000, 64),
    )
    op(
        "scatter_reduce mean",
        lambda x, i, v: x.scatter_reduce(0, i, v, "mean"),
        lambda: normal(10000, 64),
        lambda: integers(10000, 200000, 1).expand(-1, 64),
        lambda: normal(200000, 64),
    )
    op(
        "take_along_dim",
        lambda x, i: lib.take_along_dim(x, i, 1),
        lambda: normal(4096, 1000),
        lambda: integers(1000, 4096, 100),
    )
