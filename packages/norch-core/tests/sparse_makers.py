"""Sparse tensors that tests share."""

from __future__ import annotations

import numpy as np

import norch

INDICES = [[0, 2, 1, 2, 0], [1, 0, 3, 0, 1]]  # two places come twice


def draw(*shape, seed=0):
    return norch.tensor(np.random.default_rng(seed).standard_normal(shape))


def coo(**options):
    return norch.sparse_coo_tensor(INDICES, draw(5), (3, 4), **options)


def csr(**options):
    return coo(**options).to_sparse_csr()


def csc(**options):
    return coo(**options).to_sparse_csc()


MAKERS = [coo, lambda: coo().coalesce(), csr, csc]
