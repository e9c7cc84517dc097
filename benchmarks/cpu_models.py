"""The rows of benchmarks/cpu.py that are a training step each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from cpu_rows import LIBRARIES, Row, same_results
from timing import Call
from trained_models import (
    BATCH,
    CONTEXT,
    IMAGE,
    LAYERS,
    VOCABULARY,
    WIDTH,
    article,
    classes,
    cnn,
    gpt,
    lstm,
    mlp,
    norch_library,
    same_weights,
    sequences,
    text,
    torch_library,
    training_step,
    voice_detector,
)

import norch

STEPS = 3  # of which the losses must agree before a step is timed


def same_losses(calls: Mapping[str, Call]) -> str | None:
    """Says where the libraries' losses differ in their first steps."""
    losses = {library: [float(call().item()) for _ in range(STEPS)] for library, call in calls.items()}  # type: ignore[attr-defined]
    ours, theirs = losses["norch"], losses.get("torch", losses["norch"])
    if all(abs(a - b) <= 1e-4 * min(1.0, abs(b)) for a, b in zip(ours, theirs)):
        return None
    shown = [", ".join(f"{v:.6f}" for v in values) for values in (ours, theirs)]
    return f"the losses of norch are {shown[0]}, of torch {shown[1]}"


def model_row(
    name: str,
    at_most: float,
    model: Callable[[Any], Any],
    loss: str,
    optimizer: Callable[[Any, Any], Any],
    data: Callable[[np.random.Generator], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]],
    flops: float = 0,
) -> Row:
    """A row of one training step, from the same weights in each library."""

    def prepare() -> dict[str, Call]:
        norch.manual_seed(0)
        x, y = data(np.random.default_rng(0))
        calls: dict[str, Call] = {}
        libs = {n: norch_library() if n == "norch" else torch_library() for n in LIBRARIES if n != "numpy"}
        nets = {library: model(lib) for library, lib in libs.items()}
        same_weights(name, list(nets.values()), [lib.tensor for lib in libs.values()])
        for library, lib in libs.items():
            net = nets[library]
            calls[library] = training_step(
                net, getattr(lib, loss)(), optimizer(lib, list(net.parameters())), lib.tensor(x), lib.tensor(y)
            )
        return calls

    return Row(name, "training step", at_most, prepare, same_losses, flops=flops)


def _voice_row() -> Row:
    def prepare() -> dict[str, Call]:
        norch.manual_seed(0)
        samples = np.random.default_rng(0).standard_normal((1, 1, 512), np.float32)
        libs = {n: norch_library() if n == "norch" else torch_library() for n in LIBRARIES if n != "numpy"}
        nets = {library: voice_detector(lib) for library, lib in libs.items()}
        same_weights("voice", list(nets.values()), [lib.tensor for lib in libs.values()])
        return {library: _listening(lib, nets[library], lib.tensor(samples)) for library, lib in libs.items()}

    return Row("voice detector, 512 samples", "inference", 0.6, prepare, same_results, calls=50)


def _listening(lib: Any, net: Any, samples: Any) -> Call:
    with lib.no_grad():
        states = net(samples)[1]

    def listen() -> Any:
        with lib.no_grad():
            return net(samples, states)[0]

    return listen


def _flops() -> dict[str, float]:
    """Of a step: two a multiplication; forward, the weights' gradient and, but for the first layer, the input's."""
    first = 784 * 512
    dense = 64 * 2 * (2 * first + 3 * (512 * 256 + 256 * 10))
    conv1 = IMAGE**2 * 32 * 9
    conv2 = (IMAGE // 2) ** 2 * 64 * 32 * 9
    conv = 64 * 2 * (2 * conv1 + 3 * (conv2 + 64 * (IMAGE // 4) ** 2 * 10))
    tokens = BATCH * CONTEXT
    attention = tokens * WIDTH * CONTEXT  # two products, and half of each is masked
    blocks = LAYERS * (tokens * 12 * WIDTH**2 + attention)
    gates = 2048 * 8 * 256**2  # of a layer: products with the input and with the state
    return {
        "lstm": 2 * (6 * gates - 2048 * 4 * 256**2),
        "mlp": dense,
        "cnn": conv,
        "gpt": 6 * (blocks + tokens * WIDTH * VOCABULARY),
    }


FLOPS = _flops()
_EXACT = [
    model_row(
        "the article's model, batch 1",
        0.2,
        article,
        "MSELoss",
        lambda lib, params: lib.SGD(params, lr=0.001),
        lambda rng: (np.full((1, 1), 0.4, np.float32), np.full((1, 1), 0.15, np.float32)),
    ),
    model_row(
        "MLP 784-512-256-10, batch 64",
        0.55,
        mlp,
        "CrossEntropyLoss",
        lambda lib, params: lib.SGD(params, lr=0.01, momentum=0.9),
        lambda rng: classes(rng, 64, 784),
        FLOPS["mlp"],
    ),
    model_row(
        "CNN 1x28x28, batch 64",
        0.5,
        cnn,
        "CrossEntropyLoss",
        lambda lib, params: lib.Adam(params, lr=0.001),
        lambda rng: classes(rng, 64, 1, IMAGE, IMAGE),
        FLOPS["cnn"],
    ),
    model_row(
        "GPT, 4 layers of 128, batch 16",
        0.7,
        gpt,
        "CrossEntropyLoss",
        lambda lib, params: lib.AdamW(params, lr=0.001),
        text,
        FLOPS["gpt"],
    ),
    model_row(
        "LSTM, 2 layers of 256, 32 x 64",
        0.7,
        lambda lib: lstm(lib, 256),
        "MSELoss",
        lambda lib, params: lib.SGD(params, lr=0.01),
        lambda rng: sequences(rng, 256),
        FLOPS["lstm"],
    ),
    _voice_row(),
]
# With norch at lower precision, beside PyTorch at its default.
_HIGH = [
    replace(row, name=f'{row.name}, "high"', at_most=0.45, precision=("high", "highest"), tile_products=3)
    for row in _EXACT
    if row.name.startswith(("MLP", "GPT"))
]
MODELS = [*_EXACT, *_HIGH]
