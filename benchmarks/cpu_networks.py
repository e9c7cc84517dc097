"""The rows of benchmarks/cpu.py that are networks of the sizes in use, and attention as these have it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from cpu_models import model_row
from cpu_rows import LIBRARIES, F, Row, array_of, op_row
from image_models import resnet18
from networks import HEAD, HEADS, INNER, KEY_HEADS, LAYERS, VOCABULARY, WIDTH, efficientnet, llama
from timing import Call
from trained_models import norch_library, same_weights, torch_library

import norch
from norch.nn.quantized import quantize_

DEVIATION = 2e-5  # of the largest number
WEIGHTS = LAYERS * WIDTH * (2 * WIDTH + 2 * KEY_HEADS * HEAD + 3 * INNER) + VOCABULARY * WIDTH


def same_outputs(calls: Mapping[str, Call]) -> str | None:
    """Says where norch's output is not PyTorch's."""
    found = [array_of(call()) for call in calls.values()]
    off = max(float(np.abs(a - found[0]).max()) for a in found)
    scale = float(np.abs(found[0]).max())
    return f"outputs differ by up to {off:.1e}, the largest is {scale:.1e}" if off > DEVIATION * scale else None


def libraries() -> dict[str, Any]:
    return {name: norch_library() if name == "norch" else torch_library() for name in LIBRARIES if name != "numpy"}


def inference(lib: Any, work: Callable[[], Any]) -> Call:
    def call() -> Any:
        with lib.no_grad():
            return work()

    return call


def _networks(title: str, model: Callable[[Any], Any]) -> list[tuple[str, Any, Any]]:
    libs = libraries()
    nets = {name: model(lib).eval() for name, lib in libs.items()}
    same_weights(title, list(nets.values()), [lib.tensor for lib in libs.values()])
    return [(name, lib, nets[name]) for name, lib in libs.items()]


def _scores(net: Any, tokens: Any, kept: Any) -> Any:
    return net(tokens, kept)[0].float()


def _language(work: str, at_most: float, before: int, tokens: int, dtype: str = "float32") -> Row:
    """A call for `tokens` tokens after `before` others."""
    title = f"Llama of 135M, {work}" if dtype == "float32" else f"Llama of 135M in {dtype}, {work}"

    def prepare() -> dict[str, Call]:
        norch.manual_seed(0)
        rng = np.random.default_rng(0)
        first, then = (rng.integers(0, VOCABULARY, (1, n)) for n in (before, tokens))
        calls: dict[str, Call] = {}
        for name, lib, net in _networks(title, llama):
            net = {"bfloat16": net.bfloat16, "float16": net.half, "float32": net.float}[dtype]()
            kept: Any = inference(lib, functools.partial(net, lib.tensor(first)))() if before else (None, None)
            calls[name] = inference(lib, functools.partial(_scores, net, lib.tensor(then), kept[1]))
        return calls

    attention = 2 * LAYERS * (before + tokens) * HEAD
    flops = 2 * (WEIGHTS - VOCABULARY * WIDTH) * tokens + 2 * VOCABULARY * WIDTH + 2 * attention * HEADS * tokens
    moved = (4 if dtype == "float32" else 2) * (WEIGHTS + attention * KEY_HEADS)
    about = {"flops": flops, "tile_products": int(dtype == "bfloat16")} if tokens > 1 else {"moved": moved}
    check = same_outputs if dtype == "float32" else near_outputs
    return Row(title, "networks", at_most, prepare, check, **about)  # type: ignore[arg-type]


def _in_16_bits(work: str, before: int, tokens: int) -> list[Row]:
    return [_language(work, most, before, tokens, dtype) for dtype, most in (("bfloat16", 0.9), ("float16", 0.7))]


def _quantised(format: str, at_most: float) -> Row:
    """A call for one token after 16 others, with weights of few bits beside PyTorch's bfloat16."""

    def prepare() -> dict[str, Call]:
        norch.manual_seed(0)
        rng = np.random.default_rng(0)
        first, then = (rng.integers(0, VOCABULARY, (1, n)) for n in (16, 1))
        calls: dict[str, Call] = {}
        for name, lib, net in _networks(format, llama):
            net = quantize_(net, format) if name == "norch" else net.bfloat16()
            kept = inference(lib, functools.partial(net, lib.tensor(first)))()
            calls[name] = inference(lib, functools.partial(_scores, net, lib.tensor(then), kept[1]))
        return calls

    nbytes = {"int8": 1, "q8_0": 34 / 32, "q4_0": 18 / 32}[format]
    return Row(
        f"Llama of 135M in {format}, a token", "networks", at_most, prepare, near_outputs, moved=WEIGHTS * nbytes
    )


def near_outputs(calls: Mapping[str, Call]) -> str | None:
    """Says where norch's output, of weights of few bits, is far from PyTorch's."""
    first, *others = (array_of(call()).astype(np.float64).ravel() for call in calls.values())
    alike = min((float(np.corrcoef(first, other)[0, 1]) for other in others), default=1.0)
    return f"outputs correlate by {alike:.3f} only" if not alike > 0.95 else None


def _images(title: str, at_most: float, batch: int) -> Row:
    def prepare() -> dict[str, Call]:
        norch.manual_seed(0)
        x = np.random.default_rng(0).standard_normal((batch, 3, 224, 224), np.float32)
        calls: dict[str, Call] = {}
        for name, lib, net in _networks(title, efficientnet):
            calls[name] = inference(lib, functools.partial(net, lib.tensor(x)))
        return calls

    return Row(title, "networks", at_most, prepare, same_outputs, flops=2 * 0.39e9 * batch)


def _pictures(size: int, batch: int, classes: int) -> Callable[..., Any]:
    return lambda rng: (rng.standard_normal((batch, 3, size, size), np.float32), rng.integers(0, classes, batch))


def _attention(title: str, at_most: float, queries: int, keys: int, **options: Any) -> Row:
    shapes = [(1, HEADS, queries, HEAD), *[(1, KEY_HEADS, keys, HEAD)] * 2]
    work = {
        "norch": lambda q, k, v: norch.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options),
        "torch": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options),
    }
    limit = {"moved": 8 * KEY_HEADS * keys * HEAD} if queries == 1 else {"flops": 4 * HEADS * queries * keys * HEAD}
    return op_row(title, "attention", at_most, shapes, work, **limit)


NETWORKS = [
    _language("prefill of 128", 0.85, 0, 128),
    _language("a token after 16", 0.8, 16, 1),
    _language("a token after 1,500", 0.8, 1500, 1),
    *_in_16_bits("prefill of 128", 0, 128),
    *_in_16_bits("a token after 16", 16, 1),
    *_in_16_bits("a token after 1,500", 1500, 1),
    *[_quantised(format, 0.7) for format in ("int8", "q8_0", "q4_0")],
    _images("EfficientNet-Lite0, batch 1", 0.8, 1),
    _images("EfficientNet-Lite0, batch 8", 0.8, 8),
    model_row(
        "EfficientNet-Lite0 step, batch 8",
        0.8,
        efficientnet,
        "CrossEntropyLoss",
        lambda lib, params: lib.SGD(params, lr=1e-4, momentum=0.9),
        _pictures(224, 8, 1000),
        6 * 0.39e9 * 8,
    ),
    model_row(
        "ResNet-18 step, 32 px, batch 32",
        0.8,
        resnet18,
        "CrossEntropyLoss",
        lambda lib, params: lib.SGD(params, lr=1e-4, momentum=0.9),
        _pictures(32, 32, 10),
        6 * 0.556e9 * 32,
    ),
    _attention("attention, a query, 1,536 keys", 1.0, 1, 1536),
    _attention("attention, 512 queries and keys", 1.0, 512, 512),
]
