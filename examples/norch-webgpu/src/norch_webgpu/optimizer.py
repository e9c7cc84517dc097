"""Steps of optimisers: one kernel a parameter, which reads and writes each of its tensors once."""

from math import prod, sqrt
from typing import Any

from .devices import Runtime
from .dtypes import KINDS, Attrs, Operands, as_float32, kind
from .source import Scalar, Tensor, Walk

DESCEND = """p *= P.kept; var d = P.sign * g;
if (P.decay != 0) { d += P.decay * p; } // 0 times an infinite parameter is not 0
"""


def _descent(f: Attrs, lr: float, decay: float, decoupled: bool = False) -> dict[str, float]:
    kept, decay = (1 - lr * decay, 0.0) if decoupled else (1.0, decay)
    return {"lr": lr, "kept": kept, "decay": decay, "sign": -1.0 if f["maximize"] else 1.0}


# How the gradient g changes the parameter p and the states a, b and c, of which there are `states`, zeros else; the
# numbers in P, from the attributes and scalars of the op.
STEPS: dict[str, tuple[str, Any]] = {
    "sgd_step": (DESCEND + """if (states > 0) {
            a = P.momentum * a + P.rest * d; d = select(a, d + P.momentum * a, P.nesterov != 0);
        }
        p -= P.lr * d;""", lambda f, lr, decay, momentum, dampening: _descent(f, lr, decay) | {
            "momentum": momentum, "rest": 1 - dampening, "nesterov": float(f["nesterov"])}),
    "adam_step": (DESCEND + """a = P.beta1 * a + P.rest1 * d; b = P.beta2 * b + P.rest2 * d * d; c = max(c, b);
        p -= P.step * a / (sqrt(select(b, c, states > 2)) * P.root + P.eps);""",
        lambda f, lr, decay, beta1, beta2, eps, first, second: {
            "beta1": beta1, "rest1": 1 - beta1, "beta2": beta2, "rest2": 1 - beta2, "eps": eps, "step": lr / first,
            "root": 1 / sqrt(second), **_descent(f, lr, decay, f["decoupled"])}),
    "update_averages": ("p += P.weight * (g - p);", lambda f, weight: {"weight": weight}),
}  # fmt: skip


def step(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """Of `count` parameters: all of them, then a state of each, then another, at last the gradients."""
    (text, numbers), count = STEPS[op], attrs["count"]
    tensors, found = [o for o in operands if not o.is_scalar], kind(operands[0])
    names = "pabc"[: len(tensors) // count - 1] + "g"
    loads = " ".join(f"var {n} = {f'get_{n}(i)' if n in names else '0f'};" for n in "pabcg")
    stores = " ".join(f"put_{n}(i, {n});" for n in names[:-1])
    body = f"const states = {len(names) - 2}; {{ {loads}\n{text}\n{stores} }}"
    fields = numbers(attrs, *[0.5] * (len(operands) - len(tensors)))
    arguments: list[Any] = [Tensor(n, found, n != "g") for n in names]
    arguments += [Scalar(n, KINDS["float32"], as_float32) for n in fields]
    kernels = [run.each(arguments, Walk("", (prod(o.shape),), []), body, {}) for o in tensors[:count]]

    def call(*args: Any) -> None:
        values = numbers(attrs, *args[2 * len(tensors) :]).values()
        for i, kernel in enumerate(kernels):
            places = [2 * (each * count + i) for each in range(len(names))]
            kernel(*[args[at + end] for at in places for end in (0, 1)], *values)

    return call
