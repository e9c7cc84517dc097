"""recurrence: a recurrent layer over all steps of a sequence, or one step of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...autograd import grad as gradients
from ...autograd.graph import is_recording
from ...dispatch.arguments import check_functions
from ...dtype import bool_
from ...errors import DTypeError, ShapeError
from ...spec import Spec
from ..elementwise.arithmetic import sigmoid, tanh, where
from ..families import composite, floating, one_dtype
from ..shape.joining import cat, stack
from .activation import relu
from .linear import linear
from .recurrence_grad import GATES, recurrence_grad, steps

if TYPE_CHECKING:
    from ...tensor import Tensor

States = tuple["Tensor", ...]

_OP = "recurrence"


def _infer(
    input: Spec,
    hx: Spec,
    cx: Spec | None,
    weight_ih: Spec,
    weight_hh: Spec,
    bias_ih: Spec | None,
    bias_hh: Spec | None,
    weight_hr: Spec | None,
    mask: Spec | None,
    mode: str,
    reverse: bool,
    saves: bool,
) -> tuple[Spec, ...]:
    if mode not in GATES:
        raise ValueError(f"{_OP}(): mode must be one of {', '.join(GATES)}, got {mode!r}")
    is_lstm = mode == "LSTM"
    if is_lstm != (cx is not None) or (weight_hr is not None and not is_lstm):
        raise ShapeError(f"{_OP}(): cx is there for an LSTM, and weight_hr for no other; mode is {mode!r}")
    floating(_OP, input)
    one_dtype(_OP, input, hx, cx, weight_ih, weight_hh, bias_ih, bias_hh, weight_hr)
    if input.ndim not in (2, 3):
        raise ShapeError(f"{_OP}(): expected input (T, N, in), or (N, in) for one step, got {tuple(input.shape)}")
    count, columns = input.shape[-2:]
    rows, width = weight_ih.shape[0] if weight_ih.ndim else 0, hx.shape[-1] if hx.ndim else 0
    hidden = rows // GATES[mode]
    expected = {
        "hx": (hx, (count, width if weight_hr is not None else hidden)),
        "cx": (cx, (count, hidden)),
        "weight_ih": (weight_ih, (GATES[mode] * hidden, columns)),
        "weight_hh": (weight_hh, (GATES[mode] * hidden, width)),
        "bias_ih": (bias_ih, (rows,)),
        "bias_hh": (bias_hh, (rows,)),
        "weight_hr": (weight_hr, (width, hidden)),
        "mask": (mask, (*input.shape[:-1], 1)),
    }
    for name, (spec, shape) in expected.items():
        if spec is not None and tuple(spec.shape) != shape:
            raise ShapeError(
                f"{_OP}(): {name} {tuple(spec.shape)} does not fit input {tuple(input.shape)}: expected {shape}"
            )
    if input.ndim == 3 and not input.shape[0]:
        raise ShapeError(f"{_OP}(): expected at least one time step, got input {tuple(input.shape)}")
    if mask is not None and (mask.dtype is not bool_ or input.ndim == 2):
        raise DTypeError(f"{_OP}(): mask must be bool and come with all steps, got {mask.dtype}")
    lead = tuple(input.shape[:-1])
    results = [hx.like(hx.shape)] if input.ndim == 2 else [input.like((*lead, width)), hx.like(hx.shape)]
    if cx is not None:
        results.append(cx.like(cx.shape))
    if saves and mode in _SAVED:
        results += [input.like((*lead, size * hidden)) for size in _SAVED[mode]]
    return tuple(results)


_SAVED = {"GRU": (4,), "LSTM": (4, 1)}
"""What the gradient needs besides the states: the gates, and of an LSTM the cells; their widths in hidden sizes."""


def _elementary(mode: str, input: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor | None]) -> States:
    """One step from ops that have derivatives of every order."""
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    of_input, of_state = linear(input, w_ih, b_ih), linear(states[0], w_hh, b_hh)  # type: ignore[arg-type]
    if mode == "GRU":
        return _gru_step(of_input, of_state, states[0])[:1]
    total = of_input + of_state
    if mode != "LSTM":
        return (tanh(total) if mode == "RNN_TANH" else relu(total),)
    h, c, _ = _lstm_step(total, states[1])
    return h if w_hr is None else linear(h, w_hr), c


def _gru_step(of_input: Tensor, of_state: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The next h, the gates r and z side by side, n, and the state's part of n."""
    size = h.spec.shape[-1]
    rz = sigmoid(of_input.narrow(-1, 0, 2 * size) + of_state.narrow(-1, 0, 2 * size))
    from_state = of_state.narrow(-1, 2 * size, size)
    n = tanh(of_input.narrow(-1, 2 * size, size) + rz.narrow(-1, 0, size) * from_state)
    return n + rz.narrow(-1, size, size) * (h - n), rz, n, from_state


def _lstm_step(total: Tensor, c: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """The next h, before a projection, and c; and the sigmoid of all gates, the tanh of g."""
    size = c.spec.shape[-1]
    opened, new = sigmoid(total), tanh(total.narrow(-1, 2 * size, size))
    c = opened.narrow(-1, size, size) * c + opened.narrow(-1, 0, size) * new
    return opened.narrow(-1, 3 * size, size) * tanh(c), c, (opened, new)


def _through_steps(
    grads: Sequence[Tensor | None], operands: Sequence[Tensor | None], mode: str, reverse: bool, needs: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients as results of recorded ops, so that they can be differentiated again."""
    input, hx, cx, *weights, mask = operands
    assert input is not None
    assert hx is not None
    states: States = (hx,) if cx is None else (hx, cx)
    if input.spec.ndim == 2:
        results: list[Any] = list(_elementary(mode, input, states, weights))
    else:
        xs, kept = input.unbind(0), None if mask is None else mask.unbind(0)
        out: list[Any] = [None] * len(xs)
        for t in steps(len(xs), reverse):
            new = _elementary(mode, xs[t], states, weights)
            states = new if kept is None else tuple([where(kept[t], a, b) for a, b in zip(new, states, strict=True)])
            out[t] = states[0]
        results = [stack(out), *states]
    pairs = [(r, g) for r, g in zip(results, grads, strict=False) if g is not None]
    wanted = [x for x, needed in zip(operands, needs, strict=True) if needed and x is not None]
    found = iter(gradients([r for r, _ in pairs], wanted, [g for _, g in pairs], create_graph=True, allow_unused=True))
    return [next(found) if needed else None for needed in needs]


def _rule(
    g: Any,
    y: Any,
    input: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    weight_hr: Tensor | None,
    mask: Tensor | None,
    mode: str,
    reverse: bool,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    grads, results = list(g if isinstance(g, tuple) else (g,)), list(y if isinstance(y, tuple) else (y,))
    if is_recording():
        operands = (input, hx, cx, weight_ih, weight_hh, bias_ih, bias_hh, weight_hr, mask)
        return tuple(_through_steps(grads, operands, mode, reverse, needs))
    if input.spec.ndim == 2:
        grads.insert(0, None)
        results.insert(0, results[0])
    g_states, g_h, g_c = [_packed(x) for x in (*grads[:2], grads[2] if cx is not None else None)]
    gates, cells = (*results[2 if cx is None else 3 :], None, None)[:2]
    needs_weights = any(needs[3:8])
    states = results[0]
    found = recurrence_grad(
        g_states, g_h, g_c, input, hx, cx, weight_ih, weight_hh, weight_hr, mask, states, gates, cells,
        mode, reverse, bias_ih is not None, needs[0], needs_weights,
    )  # fmt: skip
    each = iter(found if isinstance(found, tuple) else (found,))
    g_hx, g_cx = next(each), next(each) if cx is not None else None
    g_input = next(each) if needs[0] else None
    if not needs_weights:
        return g_input, g_hx, g_cx, None, None, None, None, None, None
    of_weights = next(each), next(each)
    g_b_ih = next(each) if bias_ih is not None else None
    g_b_hh = next(each) if bias_ih is not None and mode == "GRU" else g_b_ih
    return g_input, g_hx, g_cx, *of_weights, g_b_ih, g_b_hh, next(each, None), None


def _packed(x: Tensor | None) -> Any:
    """x, row by row without gaps, as kernels take it."""
    return x if x is None or x.spec.is_contiguous else x.contiguous()


@composite(_infer, _rule, name=_OP, joint=True)
def _recurrence(
    input: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    weight_hr: Tensor | None,
    mask: Tensor | None,
    mode: str,
    reverse: bool,
    saves: bool,
) -> Any:
    """The results of `recurrence`; and, if `saves`, what its gradient needs: of an LSTM the gates i, f, g, o of all
    steps and the cells, of a GRU: r, z, n and the state's part of n (w_hn h + b_hn)."""
    if mode == "GRU":
        each = linear(input, weight_ih, bias_ih)
    else:  # both biases at once
        each = linear(input, weight_ih, bias_ih if bias_ih is None or bias_hh is None else bias_ih + bias_hh)
    each_input = (each,) if input.spec.ndim == 2 else each.unbind(0)
    count = len(each_input)
    kept = None if mask is None else mask.unbind(0)
    h, c, out = hx, cx, list(each_input)
    saved: list[Any] = [None] * count
    for t in steps(count, reverse):
        new_c = c
        if mode == "GRU":
            new, *rest = _gru_step(each_input[t], linear(h, weight_hh, bias_hh), h)
            saved[t] = cat(rest, -1) if saves else None
        elif mode == "LSTM":
            assert c is not None
            new, new_c, (opened, g) = _lstm_step(each_input[t] + linear(h, weight_hh), c)
            if saves:
                size = c.spec.shape[-1]
                saved[t] = cat([opened.narrow(-1, 0, 2 * size), g, opened.narrow(-1, 3 * size, size)], -1)
            new = new if weight_hr is None else linear(new, weight_hr)
        else:
            total = each_input[t] + linear(h, weight_hh)
            new = tanh(total) if mode == "RNN_TANH" else relu(total)
        if kept is not None:
            new = where(kept[t], new, h)
            new_c = None if c is None or new_c is None else where(kept[t], new_c, c)
        out[t], h, c = new, new, new_c
        if saves and c is not None:
            saved[t] = saved[t], c
    results = [h] if input.spec.ndim == 2 else [_joined(out), h]
    if c is not None:
        results.append(c)
    if saves and mode == "GRU":
        results.append(_joined(saved, input.spec.ndim == 2))
    elif saves and mode == "LSTM":
        results += [_joined(list(part), input.spec.ndim == 2) for part in zip(*saved, strict=True)]
    return tuple(results) if len(results) > 1 else results[0]


def _joined(each: list[Tensor], is_one_step: bool = False) -> Tensor:
    """stack(), by a shorter way."""
    return each[0] if is_one_step else cat(each).reshape(len(each), *each[0].spec.shape)


def recurrence(
    input: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
    weight_hr: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    mode: str = "LSTM",
    reverse: bool = False,
) -> tuple[Tensor, ...]:
    """A recurrent layer in one direction: from (T, N, in) and the first states hx (N, hidden) to the states of all
    steps, (T, N, hidden), and the last states; from (N, in), which is one step, to the states after it.

    mode: "RNN_TANH", "RNN_RELU", "GRU" (r, z, n) or "LSTM" (i, f, g, o), which alone has cx; the formulas are those of
    nn.RNN, nn.GRU and nn.LSTM. weight_ih: (gates * hidden, in); weight_hh: (gates * hidden, hidden); bias_ih, bias_hh
    (gates * hidden) or neither. weight_hr: (proj, hidden), projects an LSTM's h. mask: bool (T, N, 1), False for the
    steps of a sequence that leave its states as they are. reverse: from the last step to the first. Raises ShapeError
    for shapes that do not fit, DTypeError unless all have one floating dtype, ValueError for another mode.
    """
    given = (input, hx, cx, weight_ih, weight_hh, bias_ih, bias_hh, weight_hr)
    if (bias_ih is None) != (bias_hh is None):
        raise ShapeError(f"{_OP}(): expected both biases or neither")
    saves = is_recording() and any(x is not None and x.requires_grad for x in given)
    found = _recurrence(
        _packed(input), _packed(hx), _packed(cx), weight_ih, weight_hh, bias_ih, bias_hh, weight_hr, _packed(mask),
        mode, bool(reverse), saves,
    )  # fmt: skip
    if not isinstance(found, tuple):
        return (found,)
    return found[: input.spec.ndim - (cx is None)] if saves else found


check_functions(globals())
