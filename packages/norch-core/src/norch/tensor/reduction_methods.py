"""Reductions, products of matrices and order as methods. Each is the function of the same name in `norch.ops`."""

from __future__ import annotations

from ..ops import composite, linalg, reduction, scan, sorting


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

    matmul = linalg.matmul
    mm = linalg.mm
    bmm = linalg.bmm
    mv = linalg.mv
    dot = linalg.dot
    outer = linalg.outer
    addmm = linalg.addmm
    tril = linalg.tril
    triu = linalg.triu
    diag = linalg.diag
    trace = linalg.trace
    cross = composite.cross

    sort = sorting.sort
    argsort = sorting.argsort
    topk = sorting.topk
    unique = sorting.unique
