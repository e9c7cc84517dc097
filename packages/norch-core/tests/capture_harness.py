"""A step run as it is and captured, side by side: what the tests of norch.capture share."""

from __future__ import annotations

import numpy as np

import norch


def image(value):
    """All that can be seen of what a step returns or leaves behind, as plain data. Floats by their bits."""
    if isinstance(value, norch.Tensor):
        spec = value.spec
        with norch.no_grad():
            plain = value.detach().cpu().contiguous().reshape(-1)
            bits = bytes(plain.view(norch.uint8).flatten().tolist()) if spec.numel else b""
        grad = None if value.grad is None else image(value.grad)
        return spec.dtype.name, tuple(spec.shape), spec.strides, str(spec.device), value.requires_grad, bits, grad
    if isinstance(value, dict):
        return {key: image(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [image(part) for part in value]
    return type(value), repr(value)


def replays(captured):
    """How many calls have been replayed."""
    return captured.report().replayed


def same_bits(make, calls=7, replayed=None, around=None, **options):
    """Holds a captured step to the same step as it is. Returns the captured one.

    make: called once for each; returns the step, `feed(i)`, which gives the arguments of call i (a tuple, keyword
    arguments as a dict at its end), and a function that gives what the step may change.
    replayed: how many of the calls must have been replayed, where that is not all from the fourth on.
    around: called with i, and what `make` returned, before each call.
    """
    seen = []
    for wrap in (lambda step: step, lambda step: norch.capture(step, **options)):
        norch.manual_seed(11)
        step, feed, *state = made = make()
        run, found = wrap(step), []
        for i in range(calls):
            if around is not None:
                around(i, *made)
            given = feed(i)
            named = given[-1] if given and type(given[-1]) is dict else {}
            out = run(*(given[:-1] if named else given), **named)
            found.append((image(out), [image(part()) for part in state]))
        seen.append(found)
    for i, (wanted, got) in enumerate(zip(*seen)):
        assert got == wanted, f"call {i + 1} gave other bits"
    report = run.report()
    assert report.replayed == (max(calls - 3, 0) if replayed is None else replayed), str(report)
    return run


def numbers(i, *shape, kind=np.float32):
    """An array of the call `i`."""
    return np.random.default_rng((3, i)).normal(size=shape).astype(kind)
