"""Hooks of random programs run in the order in which those of PyTorch do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import norch


def random_program(lib: Any, seed: int) -> tuple[list[str], list[Any]]:
    """A graph of random ops that `lib` differentiates: the order in which its hooks ran, and the gradients."""
    draw = random.Random(seed)
    seen: list[str] = []
    leaves = [lib.full((2, 3), 0.1 * (i + 1), requires_grad=True) for i in range(draw.randint(1, 6))]
    for i, x in enumerate(leaves):
        if draw.random() < 0.8:
            x.register_post_accumulate_grad_hook(lambda p, i=i: seen.append(f"leaf {i}"))
    ops: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a * b,
        lambda a, b: a + b,
        lambda a, b: a.sin(),
        lambda a, b: lib.cat([a, b])[:2],
        lambda a, b: a.t().t(),
        lambda a, b: (a - b).clone(),
        lambda a, b: a.unbind(0)[0].expand(2, 3) + b,
        lambda a, b: a.sort(0)[0] * b,
        lambda a, b: a @ b.t() @ a,
        lambda a, b: a.detach() * b,
        lambda a, b: lib.where(a > 0.2, a, b),
    ]
    values = list(leaves)
    for i in range(draw.randint(1, 25)):
        out = draw.choice(ops)(draw.choice(values[-6:] + leaves), draw.choice(values))
        if draw.random() < 0.4 and out.requires_grad:
            out.register_hook(lambda g, i=i: seen.append(f"op {i}"))
        values.append(out)
    ends = [x for x in draw.sample(values, min(len(values), draw.randint(1, 3))) if x.requires_grad]
    inputs = leaves if draw.random() < 0.3 else None
    lib.autograd.backward(ends, [lib.ones(2, 3) for _ in ends], inputs=inputs)
    return seen, [x.grad for x in leaves]


RECORDED = {
    0: ["op 12", "op 10", "leaf 0", "leaf 2", "op 1", "leaf 3", "leaf 1"],
    6: ["op 14", "leaf 2", "op 9", "leaf 1", "leaf 4", "op 0"],
    19: ["leaf 0", "op 3", "leaf 4", "leaf 2", "op 0", "leaf 3"],
    37: ["leaf 5", "op 3", "leaf 4", "leaf 0", "leaf 2"],
    58: ["op 9", "leaf 4", "op 2", "leaf 1", "leaf 3"],
    75: ["op 15", "op 12", "op 8", "op 6", "op 3", "leaf 0", "op 1", "leaf 1", "leaf 2"],
    88: ["op 17", "op 12", "leaf 2", "op 11", "op 5", "leaf 1", "leaf 3"],
    92: ["op 11", "leaf 2", "op 7", "leaf 3", "leaf 1"],
}


def test_the_order_of_a_random_program() -> None:
    """As PyTorch 2.13 has it."""
    assert [random_program(norch, seed)[0] for seed in RECORDED] == list(RECORDED.values())


def test_the_order_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    for seed in range(300):
        (expected, theirs), (seen, ours) = random_program(torch, seed), random_program(norch, seed)
        assert seen == expected, seed
        for a, b in zip(ours, theirs, strict=True):
            assert (a is None) == (b is None), seed
            assert a is None or np.allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5), seed
