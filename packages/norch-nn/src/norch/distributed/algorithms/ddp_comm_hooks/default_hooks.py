"""Hooks that average gradients, and hooks that send them as 16-bit floats.

model.register_comm_hook(state=None, hook=default_hooks.bf16_compress_hook)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import norch

from ... import collectives
from ...futures import Future
from ...process_group import ProcessGroup
from ...world import resolve, world

__all__ = [
    "allreduce_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
]

Hook = Callable[[Any, Any], Future[norch.Tensor]]


def _average(group: Any, tensor: norch.Tensor) -> Future[norch.Tensor]:
    found = world() if group is None else resolve(group)
    assert isinstance(found, ProcessGroup)
    work = collectives.all_reduce(tensor.div_(found.size()), group=found, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


def allreduce_hook(process_group: Any, bucket: Any) -> Future[norch.Tensor]:
    """The average of the gradients over the processes: what happens without a hook."""
    return _average(process_group, bucket.buffer())


def _compressed(process_group: Any, bucket: Any, dtype: norch.dtype) -> Future[norch.Tensor]:
    whole = bucket.buffer()
    return _average(process_group, whole.to(dtype)).then(lambda done: whole.copy_(done.value()))


def fp16_compress_hook(process_group: Any, bucket: Any) -> Future[norch.Tensor]:
    """The average, of gradients as float16: half of the bytes."""
    return _compressed(process_group, bucket, norch.float16)


def bf16_compress_hook(process_group: Any, bucket: Any) -> Future[norch.Tensor]:
    """The average, of gradients as bfloat16: half of the bytes."""
    return _compressed(process_group, bucket, norch.bfloat16)


def _wrapped(hook: Hook, dtype: norch.dtype) -> Hook:
    def compressing(state: Any, bucket: Any) -> Future[norch.Tensor]:
        whole = bucket.buffer()
        bucket.flat = whole.to(dtype)
        found = hook(state, bucket)
        bucket.flat = whole
        return found.then(lambda done: whole.copy_(done.value()))

    return compressing


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """`hook`, which is given the gradients as float16."""
    return _wrapped(hook, norch.float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """`hook`, which is given the gradients as bfloat16."""
    return _wrapped(hook, norch.bfloat16)
