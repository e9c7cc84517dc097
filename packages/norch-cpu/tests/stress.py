"""Many Python threads in the kernels, the pool and the allocator at once: run by hand, or under ThreadSanitizer."""

from __future__ import annotations

import sys
import threading

import numpy as np

import norch
from norch import nn


def elementwise(rounds: int) -> None:
    a = norch.from_numpy(np.arange(300_000, dtype=np.float32))
    b = norch.from_numpy(np.ones((550, 545), np.float32))
    for _ in range(rounds):
        assert float((a * 2 + 1)[-1].item()) == 599_999.0
        assert float((b + b.T[:545, :1]).sum().item() if b.shape[0] == b.shape[1] else b.sum().item()) == 550 * 545
        assert float(norch.exp(a * 0).sum().item()) == 300_000.0


def matrices(rounds: int) -> None:
    a = norch.from_numpy(np.ones((200, 300), np.float32))
    b = norch.from_numpy(np.ones((300, 250), np.float32))
    for _ in range(rounds):
        assert bool((a @ b == 300).all())


def training(rounds: int) -> None:
    model = nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 10))
    optimizer = norch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = norch.from_numpy(np.ones((128, 64), np.float32))
    y = norch.from_numpy(np.zeros(128, np.int64))
    for _ in range(rounds):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def memory(rounds: int) -> None:
    for i in range(rounds):
        kept = [norch.empty(1 << (i % 18)) for _ in range(20)]
        kept[0].fill_(1)
        norch.set_num_threads(1 + i % 3)
        norch.cpu.memory_stats()
        if i % 5 == 0:
            norch.cpu.empty_cache()


def main(rounds: int) -> None:
    failures: list[BaseException] = []

    def guarded(work) -> None:  # type: ignore[no-untyped-def]
        try:
            work(rounds)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(w,)) for w in (elementwise, matrices, training, memory) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    print(f"{len(threads)} threads, {rounds} rounds: all right")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
