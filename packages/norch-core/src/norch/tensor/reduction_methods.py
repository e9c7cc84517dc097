"""Reductions, products of matrices and order as methods. Each is the function of the same name in `norch.ops`."""

from __future__ import annotations

from typing import Any

from ..ops.elementwise import composites as composite
from ..ops.matrix import matmul as linalg
from ..ops.matrix import products
from ..ops.reduction import reductions as reduction
from ..ops.reduction import scan, sorting, statistics
from .inplace import inplace


def _from_linalg(name: str, doc: str) -> Any:
    """A method of a function of `norch.linalg`, which is loaded when it is first used."""

    def method(self: Any) -> Any:
        from .. import linalg

        return getattr(linalg, name)(self)

    method.__name__, method.__doc__ = name, doc
    return method


class ReductionMethods:
    __slots__ = ()

    sum = reduction.sum
    mean = reduction.mean
    prod = reduction.prod
    max = reduction.max
    min = reduction.min
    amax = reduction.amax
    amin = reduction.amin
    argmax = reduction.argmax
    argmin = reduction.argmin
    any = reduction.any
    all = reduction.all
    var = reduction.var
    std = reduction.std
    norm = reduction.norm
    logsumexp = reduction.logsumexp
    cumsum = scan.cumsum
    cumprod = scan.cumprod
    count_nonzero = reduction.count_nonzero
    median = reduction.median
    dist = composite.dist
    cummax = scan.cummax
    cummin = scan.cummin
    logcumsumexp = scan.logcumsumexp
    diff = scan.diff
    cumsum_ = inplace(scan.cumsum)
    cumprod_ = inplace(scan.cumprod)

    aminmax = statistics.aminmax
    bincount = statistics.bincount
    corrcoef = statistics.corrcoef
    cov = statistics.cov
    histc = statistics.histc
    kthvalue = statistics.kthvalue
    mode = statistics.mode
    msort = statistics.msort
    nanmean = statistics.nanmean
    nanmedian = statistics.nanmedian
    nanquantile = statistics.nanquantile
    nansum = statistics.nansum
    quantile = statistics.quantile

    matmul = linalg.matmul
    mm = linalg.mm
    bmm = linalg.bmm
    mv = linalg.mv
    dot = linalg.dot
    outer = ger = linalg.outer
    inner = products.inner
    vdot = products.vdot
    kron = products.kron
    matrix_power = products.matrix_power
    renorm = products.renorm
    renorm_ = inplace(products.renorm)
    det = _from_linalg("det", "The determinant of square matrices.")
    logdet = _from_linalg("logdet", "The logarithm of the determinant of square matrices.")
    slogdet = _from_linalg("slogdet", "(sign, log of the size) of the determinant of square matrices.")
    inverse = _from_linalg("inv", "The inverse of square matrices.")
    pinverse = _from_linalg("pinv", "The Moore-Penrose inverse.")
    addmm = linalg.addmm
    addmv = products.addmv
    addr = products.addr
    addbmm = products.addbmm
    baddbmm = products.baddbmm
    addmm_ = inplace(linalg.addmm)
    addmv_ = inplace(products.addmv)
    addr_ = inplace(products.addr)
    addbmm_ = inplace(products.addbmm)
    baddbmm_ = inplace(products.baddbmm)
    tril = linalg.tril
    triu = linalg.triu
    tril_ = inplace(linalg.tril)
    triu_ = inplace(linalg.triu)
    diag = linalg.diag
    trace = linalg.trace
    cross = composite.cross

    sort = sorting.sort
    argsort = sorting.argsort
    topk = sorting.topk
    unique = sorting.unique
    unique_consecutive = sorting.unique_consecutive
