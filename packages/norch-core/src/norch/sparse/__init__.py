"""Tensors that store only some of their elements: `norch.sparse`, under the names of `torch.sparse`.

A sparse tensor is made of ordinary ones: the places of its elements, int64, and their values, through which gradients
flow. What computes with it is composed of ordinary ops on these, so that it runs on any backend.
"""

from ..dispatch.arguments import check_functions
from ..submodules import late_submodules
from ..tensor import Tensor as Tensor
from . import methods, rules  # noqa: F401  (they say what methods and ops do)
from .checking import check_sparse_tensor_invariants
from .functions import addmm, log_softmax, mm, sampled_addmm, softmax, sum
from .making import sparse_compressed_tensor, sparse_coo_tensor, sparse_csc_tensor, sparse_csr_tensor
from .old_types import *  # noqa: F403
from .tensor import SparseTensor

__all__ = [
    "SparseTensor",
    "addmm",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "sparse_compressed_tensor",
    "sparse_coo_tensor",
    "sparse_csc_tensor",
    "sparse_csr_tensor",
    "sum",
]

check_functions(globals(), __name__)
__getattr__ = late_submodules(__name__)
