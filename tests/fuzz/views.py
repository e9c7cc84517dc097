"""Programs of views, in-place changes and autograd, made line by line beside a run in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from random import Random
from typing import Any

import literals
from program import compiled, library, namespace, quiet

Shape = tuple[int, ...]


class Writer:
    """A program being written, with what its variables are by now."""

    def __init__(self, r: Random) -> None:
        self.r = r
        self.lines: list[str] = []
        self.T = library("torch")
        self.names = namespace(self.T)
        self.made = 0
        self.laid_out: set[str] = set()
        """Variables that lie in memory as in PyTorch; results of ops on transposed tensors need not."""

    def tensors(self, floats: bool = False) -> list[str]:
        known = namespace(self.T)
        return [
            n
            for n, v in self.names.items()
            if n not in known and isinstance(v, self.T.Tensor) and (v.is_floating_point() or not floats)
        ]

    def any(self, floats: bool = False) -> str:
        """A variable, a late one rather than an early one."""
        found = self.tensors(floats) or [self.new_leaf()]
        return found[max(self.r.randrange(len(found)), self.r.randrange(len(found)))]

    def shape(self, name: str) -> Shape:
        return tuple(self.names[name].shape)

    def dtype(self, name: str) -> str:
        return str(self.names[name].dtype).split(".")[-1]

    def fresh_name(self) -> str:
        self.made += 1
        return f"v{self.made}"

    def add(self, line: str) -> bool:
        """Appends a line that PyTorch takes; one that it refuses ends the program at times, else is forgotten."""
        try:
            exec(compiled(line), self.names)
        except Exception as e:
            if self.r.random() < 0.15 and "not implemented" not in str(e) and self.lines:
                self.lines.append(line)
                raise Refused from None
            return False
        self.lines.append(line)
        return True

    def new_leaf(self) -> str:
        name = self.fresh_name()
        kind = literals.dtype(self.r, ("float32", "float64")) if self.r.random() < 0.8 else "int64"
        made = literals.tensor(self.r, literals.shape(self.r, 0, 3), kind, self.r.choice(("plain", "ties")))
        # A leaf that is a view loses gradients in PyTorch once its base is changed.
        grad = ".clone().requires_grad_()" if kind != "int64" and self.r.random() < 0.6 else ""
        self.add(f"{name} = {made}{grad}")
        self.laid_out.add(name)
        return name


class Refused(Exception):
    """The program ends with a line that PyTorch refuses: norch must do so too."""


def generate(r: Random) -> list[str]:
    """A program of up to 14 lines."""
    w = Writer(r)
    with quiet():
        try:
            w.new_leaf()
            for _ in range(r.randint(3, 14)):
                r.choices(*zip(*ACTIONS, strict=True))[0](w)
        except Refused:
            pass
    return w.lines


# --- What a line may do ---------------------------------------------------------------------------------------------


def view_of(w: Writer, name: str) -> str:
    """A view of a variable, as an expression."""
    r, shape = w.r, w.shape(name)
    n = len(shape)
    d = r.randrange(-n, n) if n else 0
    size = shape[d] if n else 1
    kinds = ("index", "reshape", "transpose", "unsqueeze", "squeeze", "expand", "select", "narrow", "diagonal",
             "unfold", "as_strided", "permute", "split", "view", "detach", "flatten", "unbind", "chunk", "movedim",
             "alias", "real", "unflatten", "swapaxes")  # fmt: skip
    kind = r.choice(kinds)
    if kind in ("as_strided", "reshape", "view", "flatten") and name not in w.laid_out:
        kind = "alias"
    if kind == "index":
        return f"{name}[{basic_index(r, shape)}]"
    if kind in ("reshape", "view"):
        return f"{name}.{kind}({split_up(r, prod(shape))})"
    if kind in ("transpose", "movedim", "swapaxes"):
        return f"{name}.{kind}({d}, {r.randrange(-n, n) if n else 0})"
    if kind == "permute":
        return f"{name}.permute({tuple(r.sample(range(n), n))})"
    if kind == "unsqueeze":
        return f"{name}.unsqueeze({r.randrange(-n - 1, n + 1)})"
    if kind == "squeeze":
        return f"{name}.squeeze({r.choice(('', d))})"
    if kind == "expand":
        more = (2,) * r.randrange(2)
        return f"{name}.expand({(*more, *(r.choice((3, -1)) if s == 1 else s for s in shape))})"
    if kind == "select":
        return f"{name}.select({d}, {r.randrange(-size, size) if size else 0})"
    if kind == "narrow":
        start = r.randint(0, size)
        return f"{name}.narrow({d}, {start}, {r.randint(0, size - start)})"
    if kind == "diagonal":
        return f"{name}.diagonal({r.choice((0, 0, 1, -1))})"
    if kind == "unfold":
        return f"{name}.unfold({d}, {r.randint(1, max(size, 1))}, {r.choice((1, 1, 2))})"
    if kind == "as_strided":
        of = r.choice(((2, 2), (3,), (2,), (1, 2), ()))
        return f"{name}.as_strided({of}, {tuple(r.choice((0, 1, 2)) for _ in of)}, {r.choice((0, 0, 1))})"
    if kind == "split":
        return f"{name}.split({r.randint(1, max(size, 1))}, {d})[{r.choice((0, -1))}]"
    if kind == "chunk":
        return f"{name}.chunk(2, {d})[{r.choice((0, -1))}]"
    if kind == "unbind":
        return f"{name}.unbind({d})[{r.choice((0, -1))}]"
    if kind == "unflatten":
        return f"{name}.unflatten({d}, (-1, {r.choice((1, 2))}))"
    return f"{name}[...]" if kind == "alias" else f"{name}.real" if kind == "real" else f"{name}.{kind}()"


def split_up(r: Random, count: int) -> Shape:
    """A shape of so many elements."""
    found = []
    while count > 1 and r.random() < 0.6:
        part = r.choice([k for k in range(1, count + 1) if count % k == 0])
        found.append(part)
        count //= part
    return (*found, count)


def basic_index(r: Random, shape: Shape) -> str:
    parts = []
    for n in shape:
        if r.random() < 0.2:
            break
        low, high = sorted((r.randint(0, n), r.randint(0, n)))
        one = str(r.randrange(-n, n) if n else 0)
        parts.append(r.choice((":", f"{low}:{high}", f"{-n}:{high}", f"::{r.choice((1, 2))}", one, f"{low}:")))
    if r.random() < 0.2:
        parts.insert(r.randint(0, len(parts)), r.choice(("None", "...")))
    return ", ".join(parts) or "..."


def advanced_index(r: Random, shape: Shape) -> str:
    """With a tensor, a list or a mask in it; no position twice, since of two writes either may win."""
    if not shape or 0 in shape:
        return "..."
    d = r.randrange(len(shape))
    n = shape[d]
    some = r.sample(range(n), r.randint(0, n))
    if r.random() < 0.4:
        bits = [r.random() < 0.5 for _ in range(n)]
        chosen = f"T.tensor({bits})"
    else:
        chosen = r.choice((f"T.tensor({some}, dtype=T.int64)", f"{some}" if some else "T.tensor([], dtype=T.int64)"))
    others = [r.choice((":", "0", ":", "::2")) for _ in shape]
    others[d] = chosen
    return ", ".join(others[: r.randint(d + 1, len(shape))])


def operand(w: Writer, name: str) -> str:
    """Something that broadcasts with a variable: another one, a view, a new tensor or a number."""
    r, shape = w.r, w.shape(name)
    fits = [n for n in w.tensors() if broadcasts(w.shape(n), shape)]
    if fits and r.random() < 0.6:
        found = r.choice(fits)
        # What a write does that reads the same memory in another layout is defined nowhere.
        return found if found == name else f"{found}.clone()"
    if r.random() < 0.4:
        return r.choice(("2", "0.5", "-1", "3"))
    kind = w.dtype(name) if w.dtype(name) != "bool" else "int64"
    return literals.tensor(r, literals.broadcastable(r, shape), kind, "plain")


def broadcasts(small: Shape, big: Shape) -> bool:
    return len(small) <= len(big) and all(a in (1, b) for a, b in zip(small[::-1], big[::-1], strict=False))


def make_view(w: Writer) -> None:
    name, of = w.fresh_name(), w.any()
    if w.add(f"{name} = {view_of(w, of)}") and of in w.laid_out:
        w.laid_out.add(name)


def make_result(w: Writer) -> None:
    name = w.any(floats=w.r.random() < 0.8)
    other, result = operand(w, name), w.fresh_name()
    made = w.add(
        f"{result} = "
        + w.r.choice(
            (
                f"{name} + {other}", f"{name} * {other}", f"{other} - {name}", f"{name} / 3", f"{name}.exp()",
                f"{name}.sin()", f"{name}.tanh()", f"{name}.relu()", f"{name}.sum({w.r.choice(('', '0', '-1'))})",
                f"{name}.clone()", f"{name}.mean()", f"{name} ** 2", f"{name}.abs()",
                f"T.where({name} > 0, {name}, {other})", f"{name}[{advanced_index(w.r, w.shape(name))}]",
                f"T.cat([{name}, {name}])", f"T.stack([{name}, {name}], -1)", f"{name}.max()", f"{name}.cumsum(0)",
                f"{name}.sigmoid()", f"({name} * 1.0).softmax(-1)", f"{name}.t() @ {name}", f"{name}.repeat(2, 1)",
                f"{name}.masked_fill({name} > 0, 1)", f"{name}.sort(dim=0, stable=True)[0]", f"{name}.prod()",
                f"{name}.norm()",
                f"F.pad({name}, (1, 1))", f"{name}.double()", f"{name}.to(T.float32)", f"{name}.flip(0)",
                f"{name}.index_select(0, T.tensor([0]))", f"{name}.clamp(-1, 1)", f"{name}.logsumexp(0)",
            )
        )
    )  # fmt: skip
    if made and name in w.laid_out and all(w.names[n].is_contiguous() for n in (name, result)):
        w.laid_out.add(result)


def change(w: Writer) -> None:
    name = w.any()
    other = operand(w, name)
    target = name if w.r.random() < 0.6 else view_of(w, name)
    if target != name and other.isidentifier():
        other = f"{other}.clone()"
    item, some = basic_index(w.r, w.shape(name)), advanced_index(w.r, w.shape(name))
    line = w.r.choice(
        (
            f"{target}.add_({other})", f"{target}.mul_({other})", f"{target}.sub_({other}, alpha=2)",
            f"{target}.copy_({other})", f"{target}.fill_(2)", f"{target}.zero_()", f"{target}.div_(2)",
            f"{name} += {other}", f"{name} *= {other}", f"{name} -= 1", f"{name}[{item}] = 1",
            f"{name}[{item}] = {other}",
            f"{name}[{item}] += 1", f"{name}[{some}] = 2", f"{name}[{some}] *= 3", f"{target}.exp_()",
            f"{target}.relu_()", f"{target}.neg_()", f"{target}.masked_fill_({name} > 0, 1)", f"{target}.clamp_(-1, 1)",
            f"{name}.{w.r.choice(('t_()', 'unsqueeze_(0)', 'squeeze_()', 'transpose_(0, -1)'))}",
        )
    )  # fmt: skip
    guard = w.r.random()
    if guard < 0.3 and not any(f"{kind}_(" in line for kind in ("t", "unsqueeze", "squeeze", "transpose")):
        line = f"with T.no_grad(): {line}"
    elif guard < 0.4:
        line = line.replace(name, f"{name}.data", 1)
    w.add(line)


def differentiate(w: Writer) -> None:
    r, name = w.r, w.any(floats=True)
    s = f"({r.choice((name, f'{name} * {name}', f'{name} * 2'))}).sum()"
    leaves = [n for n in w.tensors(floats=True) if w.names[n].requires_grad]
    some = ", ".join(r.sample(leaves, min(len(leaves), 2)))
    w.add(
        r.choice(
            (
                f"{s}.backward()", f"{s}.backward(retain_graph=True)", f"{s}.backward()",
                f"{w.fresh_name()} = T.autograd.grad({s}, [{some}], allow_unused=True)",
                f"{w.fresh_name()} = T.autograd.grad({s}, [{some}], create_graph=True, allow_unused=True)[0]",
                f"{name}.backward(T.ones_like({name}))",
            )
        )
    )  # fmt: skip


def settings(w: Writer) -> None:
    r, name = w.r, w.any(floats=True)
    # A hook on a view of what was changed in place ends PyTorch's process.
    hook = f"{name}.register_hook(lambda g: g * 2)" if w.names[name].is_leaf else f"{name}.retain_grad()"
    w.add(
        r.choice(
            (
                f"{name}.retain_grad()", hook,
                f"{name}.grad = None", f"{name}.grad.zero_()",
                f"{w.fresh_name()} = {name}.grad", f"{w.fresh_name()} = {name}.detach()",
                f"{w.fresh_name()} = {name}.is_leaf", f"{name}.data = {name}.data * 2",
            )
        )
    )  # fmt: skip


ACTIONS: tuple[tuple[Callable[[Writer], Any], int], ...] = (
    (make_view, 5), (make_result, 5), (change, 5), (differentiate, 3), (settings, 1), (Writer.new_leaf, 1),
)  # fmt: skip
