"""What the promises of DistributedDataParallel are made of: the process group, and what ranks compare."""

from __future__ import annotations

import os
from unittest import TestCase

import norch.distributed as dist
from norch.distributed.data_parallel import buckets
from norch.distributed.engine import Request
from norch.distributed.mpi import MPICommunicator

raises = TestCase().assertRaisesRegex  # pytest takes as long to import as norch.nn

if os.environ.get("TOGETHER"):  # as if MPI's engine reduced several tensors together, as NCCL's does

    class All(Request):
        def __init__(self, requests):
            self.requests = requests

        def test(self):
            return all(request.test() for request in tuple(self.requests))

    MPICommunicator.reduces_together = True
    MPICommunicator.all_reduce_together = lambda self, tensors, op: All([self.all_reduce(t, op) for t in tensors])
    buckets.IN_PLACE = 100

dist.init_process_group(timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()
PROMISES = []


def promise(function):
    PROMISES.append(function)
    return function


OPTIONS = [
    {},
    {"bucket_cap_mb": 0.002, "gradient_as_bucket_view": True},
    {"find_unused_parameters": True},
    {"static_graph": True},
]


def gathered(values):
    """The objects of all ranks."""
    found = [None] * size
    dist.all_gather_object(found, values)
    return found


def alike(tensors):
    """Whether all ranks have the same bits."""
    found = gathered([t.detach().numpy().tobytes() for t in tensors])
    return all(other == found[0] for other in found)
