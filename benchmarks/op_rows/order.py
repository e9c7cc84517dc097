"""What looks for order, counts, or draws at random."""

from __future__ import annotations

from typing import Any

from .inputs import Op, sources


def rows(op: Op, lib: Any, device: str) -> None:
    normal, uniform, integers = sources(lib, device)
    functional = lib.nn.functional
    op(
        "embedding 50000x512",
        lambda w, i: functional.embedding(i, w),
        lambda: normal(50000, 512),
        lambda: integers(50000, 64, 512),
    )
    op(
        "embedding hot",
        lambda w, i: functional.embedding(i, w),
        lambda: normal(1000, 512),
        lambda: integers(10, 64, 512),
    )
    op(
        "embedding_bag mean",
        lambda w, i: functional.embedding_bag(i, w),
        lambda: normal(50000, 128),
        lambda: integers(50000, 4096, 20),
    )
    op("one_hot", lambda i: functional.one_hot(i, 1000), lambda: integers(1000, 8192), grad=False)
    op("topk 10 of 32000", lambda x: x.topk(10)[0], lambda: normal(512, 32000))
    op("topk 50 of 1000", lambda x: x.topk(50)[0], lambda: normal(8192, 1000))
    op("topk 2 of 64", lambda x: x.topk(2)[0], lambda: normal(16384, 64))
    op("sort 1M", lambda x: x.sort()[0], lambda: normal(1 << 20))
    op("sort rows 1000", lambda x: x.sort(-1)[0], lambda: normal(2048, 1000))
    op("sort dim 0", lambda x: x.sort(0)[0], lambda: normal(2048, 1000))
    op("argsort int", lambda x: x.argsort(), lambda: integers(1000, 1 << 20), grad=False)
    op("argsort rows desc", lambda x: x.argsort(-1, descending=True), lambda: normal(512, 32000), grad=False)
    op("kthvalue", lambda x: x.kthvalue(100)[0], lambda: normal(2048, 1000))
    op("median rows", lambda x: x.median(-1)[0], lambda: normal(2048, 1000))
    op("median all", lambda x: x.median(), lambda: normal(1 << 20), grad=False)
    op("mode", lambda x: x.mode(-1)[0], lambda: integers(50, 2048, 100), grad=False)
    op("quantile", lambda x: x.quantile(0.9), lambda: normal(1 << 20))
    op("unique", lambda x: lib.unique(x), lambda: integers(10000, 1 << 20), grad=False)
    op(
        "unique inverse counts",
        lambda x: lib.unique(x, return_inverse=True, return_counts=True),
        lambda: integers(10000, 1 << 18),
        grad=False,
    )
    op("unique_consecutive", lambda x: lib.unique_consecutive(x), lambda: integers(3, 1 << 20), grad=False)
    op("unique dim 0", lambda x: lib.unique(x, dim=0), lambda: integers(10, 20000, 4), grad=False)
    op("cumsum rows", lambda x: x.cumsum(-1), lambda: normal(8192, 1000))
    op("cumsum dim 0", lambda x: x.cumsum(0), lambda: normal(8192, 1000))
    op("cumsum 16M", lambda x: x.cumsum(0), lambda: normal(1 << 24))
    op("cumsum int mask", lambda x: x.cumsum(-1), lambda: integers(2, 512, 2048), grad=False)
    op("cumprod", lambda x: x.cumprod(-1), lambda: uniform(8192, 1000) + 0.5)
    op("cummax", lambda x: x.cummax(-1)[0], lambda: normal(8192, 1000))
    op("logcumsumexp", lambda x: x.logcumsumexp(-1), lambda: normal(8192, 1000))
    op("logsumexp", lambda x: x.logsumexp(-1), lambda: normal(8192, 1000))
    op("logaddexp", lib.logaddexp, lambda: normal(8192, 1000), lambda: normal(8192, 1000))
    op(
        "searchsorted",
        lambda s, x: lib.searchsorted(s, x),
        lambda: normal(100000).sort()[0],
        lambda: normal(1 << 20),
        grad=False,
    )
    op(
        "bucketize",
        lambda x, s: lib.bucketize(x, s),
        lambda: normal(1 << 20),
        lambda: lib.linspace(-3, 3, 100, device=device),
        grad=False,
    )
    op("histc", lambda x: lib.histc(x, 100, -3, 3), lambda: normal(1 << 20), grad=False)
    op("bincount", lambda x: lib.bincount(x, minlength=1000), lambda: integers(1000, 1 << 20), grad=False)
    op("multinomial", lambda x: lib.multinomial(x, 1), lambda: uniform(512, 32000), grad=False)
    op("multinomial no repl", lambda x: lib.multinomial(x, 100), lambda: uniform(64, 10000), grad=False)
    op("randperm 1M", lambda: lib.randperm(1 << 20, device=device), grad=False)
    op("randn 16M", lambda: lib.randn(1 << 24, device=device), grad=False)
    op("rand bernoulli", lambda p: lib.bernoulli(p), lambda: uniform(8192, 1024), grad=False)
    op("randint 1M", lambda: lib.randint(0, 1000, (1 << 20,), device=device), grad=False)
    op("exponential_", lambda p: p.exponential_(), lambda: normal(8192, 1024), grad=False)
    op("poisson", lambda p: lib.poisson(p), lambda: uniform(1024, 1024) * 5, grad=False)
    op("gamma sample", lambda p: lib.distributions.Gamma(p, p).sample(), lambda: uniform(1024, 1024) + 0.5, grad=False)
