"""Programs of which several threads run a part at once, on tensors that they share."""

from __future__ import annotations

from random import Random

import literals

FORWARD = (
    "(w @ w.t()).sum()", "(w * x).sum()", "F.linear(x, w).tanh().sum()", "w.softmax(-1)[0].sum()",
    "(w - x).pow(2).mean()", "w.sort(dim=-1, stable=True)[0].cumsum(-1).sum()", "m(x).sum()",
    "F.layer_norm(w, (4,)).exp().sum()",
    "w.sum(0).exp().sum()", "w[T.tensor([0, 2, 2])].sum()", "F.cross_entropy(w, T.tensor([0, 1, 2]))",
    "T.cat([w, x]).logsumexp(0).sum()", "(w.expand(2, 3, 4) * 2).sum()",
)  # fmt: skip


def generate(r: Random) -> list[str]:
    """Threads that compute forwards and backwards of shared parameters: gradients add up as if one after another."""
    kind = r.choice(("float32", "float64"))
    count = r.choice((2, 4, 8))
    lines = [
        f"w = {literals.plain(r, (3, 4), kind, 'plain')}.requires_grad_()",
        f"x = {literals.plain(r, (3, 4), kind, 'plain')}",
        f"m = filled(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).to(T.{kind}), 1)",
    ]
    body = r.choice(FORWARD)
    again = r.choice((3, 20))
    if r.random() < 0.6:
        lines.append(f"in_threads({count}, lambda i: [({body}).backward() for _ in range({again})])")
        return [*lines, "p = dict(m.named_parameters())"]
    lines += [
        f"found = [None] * {count}",
        "def work(i):"
        f" found[i] = [T.autograd.grad(({body}) * (i + 1), [w], allow_unused=True)[0] for _ in range({again})][-1]",
        f"in_threads({count}, work)",
    ]
    return lines
