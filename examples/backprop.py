"""Backpropagation, one step at a time: a neuron with two parameters, its graph, and how a gradient goes back.

Every number that comes out is checked against a finite difference. The picture at the end is the graph.

    python examples/backprop.py [--device cpu] [--out backprop.svg]

With `--out backprop.html` it is a page to click in: each node shows its derivative and what it kept.
"""

from __future__ import annotations

import argparse
import inspect
import math
import re
import sys
import textwrap

import norch

X, TARGET = 1.5, 1.0
START = {"w": 0.8, "b": -0.3}
STEP = 1e-4  # of the finite differences: with float64 they are right to about eight digits


def neuron(w: norch.Tensor, b: norch.Tensor, x: norch.Tensor, target: float) -> dict[str, norch.Tensor]:
    """The expression, an op a line. What it returns has every value by name."""
    p = w * x
    z = p + b
    a = norch.tanh(z)
    e = a - target
    s = e * e
    q = w * w
    r = q * 0.1
    loss = s + r
    return {"w": w, "b": b, "p": p, "z": z, "a": a, "e": e, "s": s, "q": q, "r": r, "loss": loss}


EXPRESSIONS = dict(
    line.split(" = ") for line in map(str.strip, inspect.getsource(neuron).splitlines()) if " = " in line
)
"""By name of its result each line of that."""

# What the derivative of each says, in words.
RULES = {
    "p": "a product hands each factor the gradient times the other one: dw = g * x",
    "z": "a sum hands the gradient on as it is: dp = g, db = g",
    "a": "the slope of tanh is 1 - tanh(z)^2, and tanh(z) is the result, which was kept: dz = g * (1 - a * a)",
    "e": "the target is a constant: da = g",
    "s": "e is both factors, and what they get is added up: de = g * e + g * e",
    "q": "w is both factors: dw = g * w + g * w. It has another use, in p, which comes later",
    "r": "a number is a factor like another: dq = g * 0.1",
    "loss": "a sum once more, and the first step back: ds = g, dr = g",
}


def chapter(number: int, title: str, text: str) -> None:
    print(f"\n{number}. {title}\n")
    print(textwrap.fill(" ".join(text.split()), 88) + "\n")


def forward(start: dict[str, float], device: str) -> dict[str, norch.Tensor]:
    w, b, x = (norch.tensor(v, dtype=norch.float64, device=device) for v in (start["w"], start["b"], X))
    return neuron(w.requires_grad_(), b.requires_grad_(), x, TARGET)


def with_one_changed(name: str, by: float) -> float:
    """The loss in plain Python, where one value is another: what comes before it has no say any more."""
    values = {"x": X, "target": TARGET, **START}
    if name in values:
        values[name] += by
    for line, expression in EXPRESSIONS.items():
        values[line] = eval(expression, {"norch": math}, values) + (by if line == name else 0.0)
    return values["loss"]


def step_back(scope: dict[str, norch.Tensor], name: str, expression: str, got: dict[str, float]) -> None:
    """One op alone: the gradient of its result goes in, those of its operands come out and are added up."""
    operands = [word for word in dict.fromkeys(re.findall(r"\w+", expression)) if word in scope]
    given = norch.tensor(got[name], dtype=norch.float64, device=scope[name].device)
    grads = norch.autograd.grad(scope[name], [scope[n] for n in operands], given, retain_graph=True)
    print(f"   {f'{name} = {expression}':<20}   g = d loss / d {name} = {got[name]:+.6f}")
    print(textwrap.fill(RULES[name], 84, initial_indent="      ", subsequent_indent="      "))
    for operand, grad in zip(operands, grads, strict=True):
        before, share = got.get(operand), grad.item()
        got[operand] = share + (before or 0.0)
        more = "" if before is None else f"   with the {before:+.6f} from before: {got[operand]:+.6f}"
        print(f"        d{operand} = {share:+.6f}{more}")
    print()


def main() -> int:
    parser = argparse.ArgumentParser(description="Backpropagation through one neuron, step by step.")
    parser.add_argument("--device", default="cpu", help="where to compute (default: %(default)s)")
    parser.add_argument("--out", default="backprop.svg", help="the picture, or a page: .html (default: %(default)s)")
    args = parser.parse_args()
    try:
        scope = forward(START, args.device)
    except (norch.DeviceError, norch.DTypeError) as error:  # some GPUs have no float64
        print(error, file=sys.stderr)
        return 2

    print("Backpropagation, one step at a time")
    chapter(
        1,
        "Forwards",
        """
        A neuron has an input x, a weight w and a bias b, and should answer with the target. How far off it is, squared,
        is the loss; a little of w squared is added, so that w stays small. An op a line:""",
    )
    for name, expression in EXPRESSIONS.items():
        print(f"   {name:>4} = {expression:<14} = {scope[name].item():+.6f}")

    loss = scope["loss"]
    graph = norch.graph(loss, params=scope)
    chapter(
        2,
        "What was recorded",
        """
        While it computed, norch has noted which op made what from what, and has kept the values that the derivatives
        will need. That is the graph. Its output is at the top here, and each op stands on what it was made from:""",
    )
    print(textwrap.indent(str(graph), "   "))

    chapter(
        3,
        "Backwards, step by step",
        """
        How does the loss change when one of these values does? At the loss itself the answer is 1. Each op knows its
        own derivative, so it can turn the answer for its result into the answers for its operands; where a value was
        used twice, both count. The youngest op comes first, and that is all there is to it.""",
    )
    got = {"loss": 1.0}
    for name, expression in reversed(EXPRESSIONS.items()):
        step_back(scope, name, expression, got)

    chapter(
        4,
        "Is that right?",
        f"""
        loss.backward() goes the same way in one call. And without any graph: change a value by {STEP} up and down,
        compute the loss anew in plain Python, and see by how much it has changed.""",
    )
    for name in EXPRESSIONS:
        scope[name].retain_grad()  # .grad is otherwise only that of w and b
    loss.backward()
    print(f"   {'':>4}   {'step by step':>12}   {'backward()':>12}   {'difference':>12}")
    wrong = 0
    for name in scope:
        numeric = (with_one_changed(name, STEP) - with_one_changed(name, -STEP)) / (2 * STEP)
        found = scope[name].grad.item()
        same = math.isclose(found, got[name], abs_tol=1e-12) and math.isclose(found, numeric, abs_tol=1e-6)
        wrong += not same
        print(f"   {name:>4}   {got[name]:+12.8f}   {found:+12.8f}   {numeric:+12.8f}{'' if same else '   DIFFERENT'}")
    if wrong:
        return 1

    rate = 0.5
    better = {name: START[name] - rate * got[name] for name in START}
    chapter(
        5,
        "Downhill",
        f"""
        The gradient says which way is up. A step of {rate} times the gradient the other way, and the loss is""",
    )
    after = forward(better, args.device)["loss"]
    print(f"   {loss.item():.6f} -> {after.item():.6f}     w = {better['w']:+.4f}, b = {better['b']:+.4f}\n")

    try:
        norch.graph(loss, params=scope).save(args.out)
    except OSError as error:
        print(f"no picture: {error}", file=sys.stderr)
        return 1
    print(f"picture: {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
