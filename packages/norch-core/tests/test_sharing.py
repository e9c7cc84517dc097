"""Memory that processes share."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest

import norch
from norch import DeviceError, Tensor


class Labelled(Tensor):
    pass


def change(tensors: list[Tensor], queue: multiprocessing.Queue[list[bool]]) -> None:
    whole, part, alone = tensors
    part.add_(5)
    whole[0] = 1
    alone.add_(1)
    queue.put([t.is_shared() for t in tensors] + [whole[1].item() == 5, whole.requires_grad, part.label == "p"])


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_processes_write_into_the_same_memory(method: str) -> None:
    context = multiprocessing.get_context(method)
    whole = norch.zeros(3, dtype=norch.float64).share_memory_()
    part = whole.view(3, 1)[1:].as_subclass(Labelled).share_memory_()
    part.label = "p"
    alone = norch.zeros(2)
    queue = context.Queue()
    process = context.Process(target=change, args=([whole, part, alone], queue))
    process.start()
    assert queue.get(timeout=60) == [True, True, False, True, False, True]
    process.join(60)
    assert whole.tolist() == [1, 5, 5]
    assert part.tolist() == [[5], [5]]
    assert alone.tolist() == [0, 0]


def test_views_and_the_tensor_itself_stay_on_one_memory() -> None:
    x = norch.arange(4.0).requires_grad_()
    detached, view = x.detach(), x.data[1:]
    assert not x.is_shared()
    assert x.share_memory_() is x
    assert x.share_memory_().is_shared()
    with norch.no_grad():
        x *= 2
    assert detached.tolist() == [0, 2, 4, 6]
    assert view.tolist() == [2, 4, 6]
    assert view.is_shared()
    assert not (view + 1).is_shared()
    (x * x).sum().backward()
    assert x.grad.tolist() == [0, 4, 8, 12]
    copied = pickle.loads(pickle.dumps(x))
    assert copied.tolist() == x.tolist()
    assert not copied.is_shared()
    assert norch.zeros(0, 3).share_memory_().tolist() == []


def test_memory_of_other_devices_is_not_shared() -> None:
    with pytest.raises(DeviceError, match="only CPU tensors can be shared"):
        norch.empty(2, device="meta").share_memory_()
