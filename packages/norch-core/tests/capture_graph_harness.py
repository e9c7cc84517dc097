"""A small network, run as it is and captured, whose results are differentiated later."""

import norch


def bits(value):
    if value is None or isinstance(value, int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [bits(v) for v in value]
    return value.detach().cpu().numpy().tobytes(), tuple(value.shape), value.dtype.name


class Net:
    """Two layers, one of whose weights is used twice."""

    def __init__(self):
        norch.manual_seed(0)
        self.a = norch.randn(6, 6).requires_grad_()
        self.b = norch.randn(6, 4).requires_grad_()
        self.c = norch.randn(6).requires_grad_()

    def parameters(self):
        return [self.a, self.b, self.c]

    def __call__(self, x):
        h = (x @ self.a + self.c).tanh()
        h = (h @ self.a + self.c * 0.5).relu()
        return h @ self.b

    def step(self):
        with norch.no_grad():
            for p in self.parameters():
                p -= 0.05 * p.grad

    def zero(self):
        for p in self.parameters():
            p.grad = None


def both(program, calls=9):
    """What `program(net, forward, i)` gives in each of `calls`, eagerly and captured; the captured function."""
    found = []
    for captured in (False, True):
        net = Net()
        forward = norch.capture(net.__call__) if captured else net
        norch.manual_seed(3)
        seen = []
        for i in range(calls):
            out = program(net, forward, i)
            seen.append((bits(out), bits([p.grad for p in net.parameters()]), bits(net.parameters())))
        found.append(seen)
    for i, (eager, replayed) in enumerate(zip(*found, strict=True)):
        assert eager == replayed, f"call {i}"
    return forward


def replayed(captured):
    """Whether what was captured is replayed by now."""
    return [bool(entry.programs) for entry in captured.entries.values()]
