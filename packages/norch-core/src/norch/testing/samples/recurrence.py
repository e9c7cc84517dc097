"""Recurrent layers, one sequence and one step at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtype import bool_
from ...ops.nn.recurrence import recurrence
from .record import Array, Case, Sample, case, exactly, samples, x


def _sigmoid(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))


def _cell(mode: str, v: Array, h: Array, c: Any, w_ih: Array, w_hh: Array, b_ih: Any, b_hh: Any, w_hr: Any) -> Any:
    """The next h and c of one sequence."""
    a, b = w_ih @ v + (0 if b_ih is None else b_ih), w_hh @ h + (0 if b_hh is None else b_hh)
    if mode == "GRU":
        (ar, az, an), (br, bz, bn) = np.split(a, 3), np.split(b, 3)
        z = _sigmoid(az + bz)
        return (1 - z) * np.tanh(an + _sigmoid(ar + br) * bn) + z * h, c
    if mode != "LSTM":
        return np.tanh(a + b) if mode == "RNN_TANH" else np.maximum(a + b, 0), c
    i, f, g, o = np.split(a + b, 4)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    h = _sigmoid(o) * np.tanh(c)
    return h if w_hr is None else w_hr @ h, c


def _recurrence(
    v: Array, h: Array, c: Any, w_ih: Array, w_hh: Array, b_ih: Any = None, b_hh: Any = None, w_hr: Any = None,
    mask: Any = None, *, mode: str = "LSTM", reverse: bool = False,
) -> Any:  # fmt: skip
    steps = v[None] if v.ndim == 2 else v
    out = np.zeros((*steps.shape[:2], h.shape[-1]))
    h, c = h.copy(), None if c is None else c.copy()
    for t, n in np.ndindex(steps.shape[:2]):
        at = len(steps) - 1 - t if reverse else t
        if mask is None or mask[at, n, 0]:
            h[n], new_c = _cell(mode, steps[at, n], h[n], None if c is None else c[n], w_ih, w_hh, b_ih, b_hh, w_hr)
            if c is not None:
                c[n] = new_c
        out[at, n] = h[n]
    return (*(() if v.ndim == 2 else (out,)), h, *(() if c is None else (c,)))


def _case(mode: str, gates: int, bias: bool = True, proj: int = 0, steps: int = 3, **more: Any) -> Case:
    """Three numbers in, two hidden units, two sequences."""
    rows, width = 2 * gates, proj or 2
    lead = (steps, 2) if steps else (2,)
    given: list[Any] = [x(*lead, 3), x(2, width), x(2, 2) if mode == "LSTM" else None, x(rows, 3), x(rows, width)]
    given += [x(rows), x(rows)] if bias else [None, None]
    return case(*given, x(proj, 2) if proj else None, *more.pop("mask", ()), mode=mode, **more)


_MASK = [[[True], [True]], [[True], [False]], [[True], [False]]]

SAMPLES = samples(
    Sample("recurrence", _recurrence, (
        _case("LSTM", 4), _case("LSTM", 4, False, reverse=True), _case("LSTM", 4, proj=1), _case("LSTM", 4, steps=0),
        _case("GRU", 3), _case("GRU", 3, False, steps=0), _case("GRU", 3, mask=(exactly(_MASK, bool_),), reverse=True),
        _case("RNN_TANH", 1, mask=(exactly(_MASK, bool_),)), _case("RNN_RELU", 1, steps=1, reverse=True)),
        "float", strict=False, loose=32, call=recurrence),
)  # fmt: skip
