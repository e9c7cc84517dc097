"""Collectives that gradients pass through, under PyTorch's path."""

from . import functional
from .functional import (
    all_gather,
    all_gather_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
