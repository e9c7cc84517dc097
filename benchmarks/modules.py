"""The Python time that a module adds to the ops it runs: calls of modules beside calls of their ops alone.

Each module is called on a small input, and beside it what its `forward` calls of norch, with the same tensors and
arguments, on a backend whose kernels do nothing. Rounds are interleaved; the figure is the difference of the medians.
At most 2 us.

    python benchmarks/modules.py [--rounds 15] [--calls 5000]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from timing import interleaved

import norch
from norch import nn
from norch.backend.contract import Kernel, Operand
from norch.testing.null import NullBackend, ensure_registered

LIMIT = 2.0


class NullNativeBackend(NullBackend):
    """A null backend that takes composites too, as a native one does."""

    device_type = "nullnative"

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        return _nothing


def _nothing(*args: Any) -> None:
    pass


def cases() -> dict[str, tuple[Callable[[], object], Callable[[], object], int]]:
    """By row: a module's call, that of its ops, and how many modules the call is of."""
    device = ensure_registered(NullNativeBackend)
    x = norch.empty(4, 4, device=device)
    image = norch.empty(2, 4, 4, 4, device=device)
    index = norch.empty(4, dtype=norch.int64, device=device)
    rows: dict[str, tuple[Callable[[], object], Callable[[], object], int]] = {}

    def row(name: str, module: nn.Module, op: Callable[[], object], *args: norch.Tensor, count: int = 1) -> None:
        rows[name] = (lambda: module(*args)), op, count

    linear = nn.Linear(4, 4, device=device)
    w, b = linear.weight, linear.bias
    row("Linear", linear, lambda: norch.linear(x, w, b), x)
    conv = nn.Conv2d(4, 4, 3, padding=1, device=device)
    cw, cb = conv.weight, conv.bias
    row("Conv2d", conv, lambda: norch.conv2d(image, cw, cb, (1, 1), (1, 1), (1, 1), 1), image)
    up = nn.ConvTranspose2d(4, 4, 3, device=device)
    uw, ub = up.weight, up.bias
    row(
        *("ConvTranspose2d", up),
        *(lambda: norch.conv_transpose2d(image, uw, ub, (1, 1), (0, 0), (0, 0), 1, (1, 1)), image),
    )
    layer = nn.LayerNorm(4, device=device)
    lw, lb = layer.weight, layer.bias
    row("LayerNorm", layer, lambda: norch.layer_norm(x, (4,), lw, lb, 1e-5), x)
    rms = nn.RMSNorm(4, device=device)
    rw = rms.weight
    row("RMSNorm", rms, lambda: norch.rms_norm(x, (4,), rw, None), x)
    group = nn.GroupNorm(2, 4, device=device)
    gw, gb = group.weight, group.bias
    row("GroupNorm", group, lambda: norch.group_norm(image, 2, gw, gb, 1e-5), image)
    batch = nn.BatchNorm2d(4, device=device)
    bw, bb, mean, var, seen = batch.weight, batch.bias, batch.running_mean, batch.running_var, batch.num_batches_tracked

    def batch_norm() -> object:
        seen.__iadd__(1)
        return norch.batch_norm(image, mean, var, bw, bb, True, 0.1, 1e-5)

    row("BatchNorm2d", batch, batch_norm, image)
    row("Dropout", nn.Dropout(0.1), lambda: norch.dropout(x, 0.1, True), x)
    table = nn.Embedding(8, 4, device=device)
    tw = table.weight
    row("Embedding", table, lambda: norch.embedding(index, tw, None), index)
    row("MaxPool2d", nn.MaxPool2d(2), lambda: norch.max_pool2d(image, 2, 2), image)
    row("ReLU", nn.ReLU(), lambda: norch.relu(x), x)
    row("LeakyReLU", nn.LeakyReLU(), lambda: norch.leaky_relu(x, 0.01), x)
    row("GELU", nn.GELU(), lambda: norch.gelu(x, "none"), x)
    row("Softmax", nn.Softmax(-1), lambda: norch.softmax(x, -1), x)
    row("Flatten", nn.Flatten(), lambda: image.flatten(1, -1), image)
    linears = [nn.Linear(4, 4, device=device) for _ in range(10)]
    pairs = [(m.weight, m.bias) for m in linears]

    def chain() -> object:
        out = x
        for weight, bias in pairs:
            out = norch.linear(out, weight, bias)
        return out

    row("Sequential, a Linear of 10", nn.Sequential(*linears), chain, x, count=10)
    return rows


def measure(rounds: int, number: int) -> dict[str, tuple[float, float]]:
    """Microseconds of a module's call and of its ops', by row."""
    found = cases()
    calls = {(name, part): found[name][part] for name in found for part in (0, 1)}
    times = interleaved(calls, rounds, number)
    return {
        name: tuple(statistics.median(times[name, part]) * 1e6 / found[name][2] for part in (0, 1))  # type: ignore[misc]
        for name in found
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=5000)
    options = parser.parse_args()
    found = measure(options.rounds, options.calls)
    print(f"{'us a call':<28}{'module':>8}{'ops':>8}{'added':>8}{'at most':>9}")
    for name, (module, ops) in found.items():
        print(f"{name:<28}{module:>8.2f}{ops:>8.2f}{module - ops:>8.2f}{LIMIT:>9.2f}")
    worst = max(module - ops for module, ops in found.values())
    print(f"\nmost added: {worst:.2f} us")


if __name__ == "__main__":
    main()
