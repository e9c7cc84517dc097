"""Memory that processes share."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import norch
from norch import DeviceError

# A process that is not forked imports what runs in it, which it can of a script.
SCRIPT = """
import multiprocessing, sys
import norch

class Labelled(norch.Tensor):
    pass

def change(tensors, queue):
    whole, part, alone = tensors
    part.add_(5)
    whole[0] = 1
    alone.add_(1)
    queue.put([t.is_shared() for t in tensors] + [whole[1].item() == 5, whole.requires_grad, part.label == "p"])

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    whole = norch.zeros(3, dtype=norch.float64).share_memory_()
    part = whole.view(3, 1)[1:].as_subclass(Labelled).share_memory_()
    part.label = "p"
    alone = norch.zeros(2)
    queue = context.Queue()
    process = context.Process(target=change, args=([whole, part, alone], queue))
    process.start()
    print(queue.get(timeout=50), whole.tolist(), part.tolist(), alone.tolist())
    process.join()
"""


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_processes_write_into_the_same_memory(method: str, tmp_path: Path) -> None:
    script = tmp_path / "sharing.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script), method], capture_output=True, text=True, timeout=60)
    seen = [True, True, False, True, False, True], [1.0, 5.0, 5.0], [[5.0], [5.0]], [0.0, 0.0]
    assert done.stdout.split() == " ".join(map(str, seen)).split(), done.stderr


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


AS_TORCH = """
import multiprocessing, sys
import torch

def fill(rank, results, parts):
    results[rank] = rank + 1
    parts[0].add_(1)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    results, whole = torch.zeros(2), torch.zeros(2, 3)
    view = whole[1:]
    processes = [context.Process(target=fill, args=(rank, results, [view])) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print(results.tolist(), whole.tolist(), results.is_shared())
"""


@pytest.mark.parametrize("method", [m for m in multiprocessing.get_all_start_methods() if m != "fork"])
def test_spawned_processes_share_their_arguments_as_pytorchs_do(method: str, tmp_path: Path) -> None:
    script = tmp_path / "arguments.py"
    script.write_text(AS_TORCH)
    command = [sys.executable, "-m", "norch", "run", "--as-torch", str(script), method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[1.0, 2.0] [[0.0, 0.0, 0.0], [2.0, 2.0, 2.0]] True", done.stderr
