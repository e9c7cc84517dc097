"""What a DataLoader's workers gain, and what its own part of a batch costs.

The gain: samples made by NumPy and zlib, loaded without workers and with two threads, in interleaved rounds; the target
is 1.6 times as fast. The same work by two bare threads, which hand nothing over, says what the machine allows.
The cost: microseconds a batch over a TensorDataset, where there is nothing to load, beside PyTorch's if installed.

    python benchmarks/loader.py [--rounds 7] [--processes] [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from timing import Others, interleaved

from norch.utils import data

WORKERS, TARGET = 2, 1.6
SAMPLES, BATCH = 48, 8
ROWS, ROW_BATCH = 8192, 64


class Images(data.Dataset):
    """Compressed colour images, of which each is unpacked, blurred, cropped at random and normalised."""

    def __init__(self, length: int = SAMPLES, size: int = 256) -> None:
        made = np.random.default_rng(0)
        self.shape = (3, size, size)
        pictures = (made.integers(0, 256, self.shape) // 32 * 32 for _ in range(8))
        self.packed = [zlib.compress(p.astype(np.uint8).tobytes()) for p in pictures]
        self.length = length
        x = np.fft.fftfreq(size)
        self.blur = np.exp(-50 * (x[:, None] ** 2 + x[: size // 2 + 1] ** 2)).astype(np.float32)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        raw = np.frombuffer(zlib.decompress(self.packed[index % 8]), np.uint8).reshape(self.shape)
        image = np.fft.irfft2(np.fft.rfft2(raw.astype(np.float32)) * self.blur)
        top, left = data.sample_rng().integers(0, 32, 2)
        crop = image[:, top : top + 224, left : left + 224]
        return ((crop - crop.mean()) / crop.std()).astype(np.float32), index % 10


def drain(loader: data.DataLoader) -> Callable[[], object]:
    def epoch() -> None:
        for _ in loader:
            pass

    return epoch


def gain(rounds: int, processes: bool) -> dict[str, list[float]]:
    """Seconds an epoch takes, by round."""
    images = Images()
    threads = ThreadPoolExecutor(WORKERS)
    calls = {
        "no workers": drain(data.DataLoader(images, BATCH, seed=0)),
        "2 threads": drain(data.DataLoader(images, BATCH, seed=0, num_workers=WORKERS)),
        "bare threads": lambda: list(threads.map(images.__getitem__, range(SAMPLES))),
    }
    if processes:
        loader = data.DataLoader(images, BATCH, seed=0, num_workers=WORKERS, workers="process", persistent_workers=True)
        calls["2 processes"] = drain(loader)
    times = interleaved(calls, rounds, 1)
    threads.shutdown()
    return times


def cost(rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds a batch, by row and library."""
    import norch

    x, y = np.random.default_rng(0).random((ROWS, 32), np.float32), np.arange(ROWS) % 10
    batches = ROWS // ROW_BATCH
    tensors = data.TensorDataset(norch.tensor(x), norch.tensor(y))
    pairs = list(zip(norch.tensor(x), range(ROWS)))
    calls = {
        ("TensorDataset", "norch"): drain(data.DataLoader(tensors, ROW_BATCH, shuffle=True)),
        ("list of samples", "norch"): drain(data.DataLoader(pairs, ROW_BATCH, shuffle=True)),
    }
    try:
        import torch
        import torch.utils.data as torch_data
    except ImportError:
        pass
    else:
        torch.set_num_threads(1)
        theirs = torch_data.TensorDataset(torch.tensor(x), torch.tensor(y))
        rows = list(zip(torch.tensor(x), range(ROWS)))
        calls["TensorDataset", "torch"] = drain(torch_data.DataLoader(theirs, ROW_BATCH, shuffle=True))
        calls["list of samples", "torch"] = drain(torch_data.DataLoader(rows, ROW_BATCH, shuffle=True))
    result: dict[str, dict[str, float]] = {}
    for (row, library), found in interleaved(calls, rounds, 1).items():
        result.setdefault(row, {})[library] = statistics.median(found) / batches * 1e6
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--processes", action="store_true", help="also with two worker processes")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    others = Others()
    seconds, microseconds = gain(options.rounds, options.processes), cost(options.rounds)
    base = seconds["no workers"]
    print(f"{SAMPLES} samples made by NumPy and zlib, {os.cpu_count()} processors; an epoch, median and fastest round")
    for name, taken in seconds.items():
        limit = f"   at least {TARGET}" if name == "2 threads" else ""
        middle, best = (f"{f(taken) * 1e3:>9.1f} ms {f(base) / f(taken):>5.2f}x" for f in (statistics.median, min))
        print(f"  {name:<14}{middle}{best}{limit}")
    print(f"us a batch of {ROW_BATCH}, without workers")
    for row, by in microseconds.items():
        beside = f"  {by['norch'] / by['torch']:.2f} of PyTorch's {by['torch']:.1f}" if "torch" in by else ""
        print(f"  {row:<16}{by['norch']:>8.1f}{beside}")
    share = others.share()
    if share is not None:
        print(f"other processes took {share:.0%} of the processors meanwhile")
    if options.json:
        options.json.write_text(json.dumps({"epoch_s": seconds, "batch_us": microseconds}, indent=2) + "\n")


if __name__ == "__main__":
    main()
