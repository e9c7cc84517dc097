"""Indexing and in-place writes as methods."""

from __future__ import annotations

from ..ops import indexing as ops
from ..ops import random, sampling
from ..ops import scatter_copies as placing
from ..ops.reduction import sorting
from . import indexing, inplace


class IndexingMethods:
    __slots__ = ()

    __getitem__ = indexing.__getitem__
    __setitem__ = indexing.__setitem__
    gather = ops.gather
    scatter = ops.scatter
    scatter_add = ops.scatter_add
    index_select = ops.index_select
    index_add = ops.index_add
    index_copy = ops.index_copy
    index_fill = ops.index_fill
    index_put = indexing.index_put
    index_put_ = indexing.index_put_
    take = ops.take
    take_along_dim = ops.take_along_dim
    masked_fill = ops.masked_fill
    masked_select = ops.masked_select
    nonzero = ops.nonzero
    argwhere = ops.argwhere
    searchsorted = sorting.searchsorted
    slice_scatter = placing.slice_scatter
    select_scatter = placing.select_scatter
    diagonal_scatter = placing.diagonal_scatter
    masked_scatter = placing.masked_scatter
    put = placing.put
    scatter_reduce = placing.scatter_reduce
    index_reduce = placing.index_reduce
    multinomial = sampling.multinomial

    scatter_ = inplace.inplace(ops.scatter)
    scatter_add_ = inplace.inplace(ops.scatter_add)
    index_add_ = inplace.inplace(ops.index_add)
    index_copy_ = inplace.inplace(ops.index_copy)
    index_fill_ = inplace.inplace(ops.index_fill)
    masked_fill_ = inplace.inplace(ops.masked_fill)
    masked_scatter_ = inplace.inplace(placing.masked_scatter)
    put_ = inplace.inplace(placing.put)
    index_reduce_ = inplace.inplace(placing.index_reduce)
    scatter_reduce_ = inplace.inplace(placing.scatter_reduce)

    fill_ = inplace.fill_
    zero_ = inplace.zero_
    copy_ = inplace.copy_
    uniform_ = random.uniform_
    normal_ = random.normal_
    bernoulli_ = random.bernoulli_
    random_ = random.random_
    exponential_ = sampling.exponential_
    geometric_ = sampling.geometric_
    cauchy_ = sampling.cauchy_
    log_normal_ = sampling.log_normal_
    bernoulli = random.bernoulli
