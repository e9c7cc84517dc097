"""A step run as it is and captured in parts: what the tests of split steps share."""

import norch


def bits(value):
    if value is None or isinstance(value, int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [bits(v) for v in value]
    return value.detach().cpu().numpy().tobytes(), tuple(value.shape), value.dtype.name


def weights():
    norch.manual_seed(0)
    return norch.randn(6, 6).requires_grad_(), norch.randn(6, 3).requires_grad_()


def both(make, calls=12, argument=lambda i: norch.randn(4, 6)):
    """What the function that `make(w, v)` makes does in each call, eagerly and captured; the captured function."""
    found = []
    for captured in (False, True):
        w, v = weights()
        step = make(w, v)
        if captured:
            step = norch.capture(step)
        norch.manual_seed(2)
        seen = []
        for i in range(calls):
            out = step(argument(i))
            seen.append(bits([out, w, v, w.grad, v.grad]))
        found.append(seen)
    for i, (eager, replayed) in enumerate(zip(*found, strict=True)):
        assert eager == replayed, f"call {i}"
    return step


def lines(step):
    """By part the number of its lines, and whether it is replayed."""
    return [
        (last - first + 1, any(entry.programs for entry in captured.entries.values()))
        for (first, last), captured in step.parts.described()
    ]
