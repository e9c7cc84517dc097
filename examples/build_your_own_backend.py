"""A book in a terminal: a device is built from nothing, in plain Python, and trains a network.

Its memory is a bytearray and its kernels are loops over strides. Chapter by chapter the code that makes it is shown,
and what norch can do with it by then; at the end it trains the model of "Recreating PyTorch from Scratch", is tried by
norch's own kit, and a picture is drawn.

    python examples/build_your_own_backend.py [--epochs 10] [--seed 1] [--out build_your_own_backend.png]
"""

from __future__ import annotations

import argparse
import ast
import math
import operator
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import norch
from norch import nn, optim
from norch.backend import Backend, Kernel, Operand
from norch.testing import conformance

Operands = tuple[Operand, ...]

POINTS = 51  # 0.0, 0.4, ..., 20.0, as in the article
KERNELS: dict[str, Callable[..., Kernel]] = {}
"""By op: what makes its kernel. Empty at first, and filled by the chapters."""


# --- Memory
class Memory:
    """What the device allocates: bytes, and the two attributes that norch asks of any buffer."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.modified, self.bytes = nbytes, None, bytearray(max(nbytes, 8))


class Pebble(Backend):
    """A device whose only part is Python."""

    device_type = "pebble"

    def device_count(self) -> int:
        return 1

    def allocate(self, nbytes: int, index: int) -> Memory:
        return Memory(nbytes)

    def copy_in(self, buffer: Memory, offset: int, data: memoryview) -> None:
        buffer.bytes[offset : offset + data.nbytes] = data

    def copy_out(self, buffer: Memory, offset: int, data: memoryview) -> None:
        data[:] = buffer.bytes[offset : offset + data.nbytes]

    def copy(self, out: Memory, at: int, source: Memory, start: int, nbytes: int) -> None:
        out.bytes[at : at + nbytes] = source.bytes[start : start + nbytes]

    def compile(self, op: str, operands: Operands, attrs: Mapping[str, Any]) -> Kernel | None:
        if op in KERNELS and all(operand.dtype.name in FORMATS for operand in operands):
            return KERNELS[op](*operands, **attrs)
        return None  # we have no such kernel


# --- Numbers in memory
FORMATS = {"float32": "f", "float64": "d", "int64": "q", "bool": "?"}  # memoryview's names for them
KINDS = {"float32": float, "float64": float, "int64": int, "bool": bool}


def numbers(operands: Operands, args: Sequence[Any]) -> Iterator[Any]:
    """Of each operand what a kernel is given: its numbers from its offset on, or one number."""
    given = iter(args)
    for operand in operands:
        value = next(given)
        if not operand.is_scalar:
            memory = memoryview(value.bytes).cast(FORMATS[operand.dtype.name])
            value = memory[next(given) :]
        yield value


# --- Where elements lie
def places(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Where each element lies: a step along a dim goes on by its stride."""
    found = [0]
    for size, stride in zip(shape, strides, strict=True):
        found = [place + i * stride for place in found for i in range(size)]
    return found


# --- Elementwise kernels
def elementwise(function: Callable[..., Any]) -> Callable[..., Kernel]:
    def make(*operands: Operand) -> Kernel:
        kind = KINDS[operands[0].dtype.name]
        where = [[] if o.is_scalar else places(o.shape, o.strides) for o in operands]

        def kernel(*args: Any) -> None:
            out, *inputs = numbers(operands, args)
            for element, place in enumerate(where[0]):
                values = [x[ps[element]] if ps else x for x, ps in zip(inputs, where[1:])]
                out[place] = kind(function(*values))

        return kernel

    return make


# --- A table of functions
def exp(x: float) -> float:
    return math.exp(x) if x < 709 or x != x else math.inf


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def divide(a: float, b: float) -> float:
    return a / b if b else math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)


def largest(a: Any, b: Any) -> Any:
    return a if a > b or a != a else b  # a NaN wins


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "copy": lambda x: x,
    "fill": lambda x: x,
    "neg": operator.neg,
    "abs": abs,
    "exp": exp,
    "sigmoid": sigmoid,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": divide,
    "maximum": largest,
    "lt": operator.lt,
    "eq": operator.eq,
    "where": lambda condition, x, y: x if condition else y,
}


# --- Sums
def reduction(start: float, function: Callable[[Any, Any], Any]) -> Callable[..., Kernel]:
    def make(out: Operand, x: Operand, dims: tuple[int, ...]) -> Kernel:
        kind = KINDS[out.dtype.name]
        stay = [0 if dim in dims else stride for dim, stride in enumerate(out.strides)]
        targets, sources = places(x.shape, stay), places(x.shape, x.strides)
        results = places(out.shape, out.strides)

        def kernel(*args: Any) -> None:
            to, source = numbers((out, x), args)
            totals = dict.fromkeys(results, start)
            for target, place in zip(targets, sources):
                totals[target] = function(totals[target], source[place])
            for target, total in totals.items():
                to[target] = kind(total)

        return kernel

    return make


SUMS = {"sum": (0, operator.add), "prod": (1, operator.mul), "amax": (-math.inf, largest)}


# --- Products of matrices
def matmul(out: Operand, a: Operand, b: Operand) -> Kernel:
    loop = (*out.shape, a.shape[-1])  # (..., m, n, k)
    targets = places(loop, (*out.strides, 0))
    left = places(loop, (*a.strides[:-1], 0, a.strides[-1]))
    right = places(loop, (*b.strides[:-2], 0, b.strides[-1], b.strides[-2]))
    results = places(out.shape, out.strides)
    kind = KINDS[out.dtype.name]

    def kernel(*args: Any) -> None:
        to, x, y = numbers((out, a, b), args)
        totals = dict.fromkeys(results, 0)
        for target, i, j in zip(targets, left, right):
            totals[target] += x[i] * y[j]
        for target, total in totals.items():
            to[target] = kind(total)

    return kernel


# --- The end of the backend
SOURCE = Path(__file__).read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^# --- ([^\n]*)\n(.*?)(?=^# --- )", SOURCE, re.MULTILINE | re.DOTALL))
LINES = sum(bool(line.strip()) for section in SECTIONS.values() for line in section.splitlines())


# How the book is printed


def chapter(number: int, title: str) -> None:
    print(f"\n\n{number}. {title}\n{'=' * (len(title) + 3)}")


def prose(text: str) -> None:
    for paragraph in textwrap.dedent(text).strip().split("\n\n"):
        print(f"\n{textwrap.fill(' '.join(paragraph.split()), 79)}")


def listing(title: str) -> None:
    """Prints a part of this file, and a line beside it."""
    print(f"\n    | # {title}")
    for line in SECTIONS[title].rstrip().splitlines():
        print(f"    | {line}".rstrip())


def play(text: str, names: dict[str, Any]) -> None:
    """Prints statements and what they give, as an interactive Python does; an error is a part of the story."""
    text = textwrap.dedent(text).strip()
    print()
    for statement in ast.parse(text).body:
        lines = text.splitlines()[statement.lineno - 1 : statement.end_lineno]
        print("\n".join(f"    {'...' if i else '>>>'} {line}" for i, line in enumerate(lines)))
        sys.displayhook = lambda value: None if value is None else print(textwrap.indent(repr(value), "    "))
        try:
            exec(compile(ast.Interactive([statement]), "<book>", "single"), names)
        except norch.NorchError as error:
            for line in f"{type(error).__name__}: {error}".splitlines():
                print(textwrap.fill(line, 79, initial_indent=" " * 4, subsequent_indent=" " * 8))
        finally:
            sys.displayhook = sys.__displayhook__


def bars(rows: Mapping[str, int], width: int = 40) -> None:
    most = max(rows.values())
    for title, count in rows.items():
        print(f"    {title:<10} {'#' * max(1, round(width * count / most))} {count:,}")


# The chapters


def nothing(names: dict[str, Any]) -> None:
    chapter(1, "Nothing")
    prose("""
        norch computes on devices, and a device is whatever answers to its name. No package gives one called "pebble",
        and norch says so, with all that is installed and what to try:
    """)
    play('norch.ones(3, device="pebble")', names)


def memory(names: dict[str, Any]) -> None:
    chapter(2, "Memory")
    prose("""
        A device begins with memory. Ours is a bytearray. Five methods move bytes and know nothing of numbers; the
        sixth, compile, is asked for kernels, of which we have none yet.
    """)
    listing("Memory")
    prose("That is a device. It is plugged in while the program runs, and can hold tensors and give them back:")
    play(
        """
        norch.backend.register(Pebble(), "this book", "1.0")
        x = norch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device="pebble")
        x
        bytes(x.buffer.bytes).hex(" ", 4)
        """,
        names,
    )
    prose("""
        The bytes are those of six 32-bit floats, row by row. Views need no more than that: a shape, strides and an
        offset are norch's, and the device does not hear of them.
    """)
    play(
        """
        x.stride(), x.T.stride(), x.T.buffer is x.buffer
        x[1].shape, x[1].stride(), x[1].storage_offset()
        """,
        names,
    )
    prose("To add two tensors takes a kernel. norch asked compile for it, and was given None:")
    play("x + x", names)


def kernels(names: dict[str, Any]) -> None:
    chapter(3, "A kernel")
    prose("""
        compile is told the op and, for each operand, dtype, shape and strides: the result first. Think there; the
        kernel that it returns will be called often, with nothing but buffers, offsets and numbers. Python's memoryview
        reads bytes as numbers, and a slice of it takes care of the offset.
    """)
    listing("Numbers in memory")
    prose("Strides say where elements lie. One function is all that this backend knows of them:")
    listing("Where elements lie")
    play(
        """
        places((2, 3), (3, 1))
        places((3, 2), (1, 3))
        places((2, 3), (0, 1))
        """,
        names,
    )
    prose("""
        A matrix, its transpose, and a row that is broadcast to two: a stride of 0 repeats. So a kernel that follows
        strides is right for every view, and broadcasting costs it nothing. All elementwise ops are this one loop:
    """)
    listing("Elementwise kernels")
    play(
        """
        KERNELS["copy"] = elementwise(lambda x: x)
        KERNELS["add"] = elementwise(lambda a, b: a + b)
        x + x
        x.T + norch.tensor([10.0, 20.0], device="pebble")
        """,
        names,
    )
    prose("Shapes, broadcasting, dtypes and their errors stay norch's own business:")
    play("x + norch.ones(2).to('pebble')", names)


def tables(names: dict[str, Any]) -> None:
    chapter(4, "A table of kernels")
    prose("The rest is a table. What floats do at their edges (0 / 0, the exponential of 1000) has to be said once.")
    listing("A table of functions")
    play("KERNELS |= {op: elementwise(function) for op, function in ARITHMETIC.items()}", names)
    prose("""
        A sum is a broadcast read backwards: give the result a stride of 0 along the dim that goes, and its elements
        meet in one place.
    """)
    listing("Sums")
    prose("A product of matrices is a loop over (m, n, k) in which each of the three knows two of the dims:")
    listing("Products of matrices")
    play(
        """
        KERNELS |= {op: reduction(*how) for op, how in SUMS.items()}
        KERNELS["matmul"] = matmul
        x @ x.T
        x.sum(0), (x * x).sum().sqrt()
        """,
        names,
    )
    prose(f"That is the whole backend: {LINES} lines of Python, {len(KERNELS)} kernels.")


def composites(names: dict[str, Any]) -> None:
    chapter(5, "What norch makes of it")
    prose("""
        Nobody has told the pebble what a softmax is, or a convolution. norch asks for the op by name, gets None, and
        makes it from the kernels that there are. Which ones, norch.coverage tells:
    """)
    image = norch.arange(36.0).reshape(1, 1, 6, 6).to("pebble") / 36
    window = norch.ones(1, 1, 3, 3).to("pebble")
    row = norch.tensor([[0.1, 0.7, 0.2]]).to("pebble")
    calls: dict[str, Callable[[], norch.Tensor]] = {
        "softmax": lambda: norch.softmax(row, 1),
        "layer_norm": lambda: nn.functional.layer_norm(row, (3,)),
        "silu": lambda: nn.functional.silu(row),
        "linear": lambda: nn.functional.linear(row, row),
        "mse_loss": lambda: nn.functional.mse_loss(row, row * 2),
        "conv2d": lambda: nn.functional.conv2d(image, window),
    }
    print()
    for name, call in calls.items():
        with norch.coverage.watch() as seen:
            call()
        made = [count.op for count in seen.counts.values() if count.how == "native" and count.calls]
        print(f"    {name:<12} {' '.join(dict.fromkeys(made))}")
    prose("Nor has anybody told it what a derivative is. They are made of the same kernels, and agree with the CPU's:")
    play(
        """
        def slope(device):
            w = norch.tensor([[0.5, -1.0], [2.0, 0.1]], device=device, requires_grad=True)
            norch.softmax(w @ w.T, 1).square().sum().backward()
            return w.grad

        slope("pebble")
        float((slope("pebble").cpu() - slope("cpu")).abs().max()) < 1e-6
        """,
        names,
    )
    prose("What it cannot do at all has a name, too. Here somebody has to write a kernel, or let the CPU do it:")
    play(
        """
        x.sin()
        norch.set_cpu_fallback(True)
        x.sin()
        norch.set_cpu_fallback(False)
        """,
        names,
    )


class ArticleModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(1, 10)
        self.sigmoid = nn.Sigmoid()
        self.fc2 = nn.Linear(10, 1)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self.fc2(self.sigmoid(self.fc1(x)))


def train(device: str, epochs: int, seed: int) -> tuple[nn.Module, list[float]]:
    """The article's training: one point at a time. Its model, and the mean loss of each epoch."""
    norch.manual_seed(seed)
    model = ArticleModel().to(device)  # weights are drawn on the CPU, the same for every device
    optimizer, criterion = optim.SGD(model.parameters(), lr=0.001), nn.MSELoss()
    points = norch.linspace(0, 20, POINTS).unsqueeze(1)
    pairs = [(x.to(device), x.sin().square().to(device)) for x in points.split(1)]
    losses = []
    for _ in range(epochs):
        total = 0.0
        for inputs, targets in pairs:
            loss = criterion(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / POINTS)
    return model, losses


def training(epochs: int, seed: int) -> tuple[nn.Module, dict[str, list[float]], dict[str, int]]:
    chapter(6, "A network learns")
    prose(f"""
        The model of the article: one number in, ten sigmoids, one number out. It learns sin(x)^2 from {POINTS} points,
        one at a time, for {epochs} epoch{"s" * (epochs > 1)}, on the pebble and on the CPU from the same first weights.
        That is enough to learn the mean, as in the article.
    """)
    start = time.perf_counter()
    with norch.coverage.watch() as seen:
        model, losses = train("pebble", epochs, seed)
    seconds = time.perf_counter() - start
    _, reference = train("cpu", epochs, seed)
    print("\n    epoch   pebble     cpu")
    for epoch, (ours, cpu) in enumerate(zip(losses, reference, strict=True), 1):
        if epoch % max(1, epochs // 10) == 0 or epoch == epochs:
            print(f"    {epoch:>5}   {ours:.6f}   {cpu:.6f}")
    apart = max(abs(a - b) for a, b in zip(losses, reference, strict=True))
    print(
        f"\n    mean loss {losses[-1]:.4f} after {epochs} epochs, {seconds:.1f} s; at most {apart:.1e} from the CPU's"
    )
    counts = {c.op: c.calls for c in seen.rows() if c.device == "pebble" and c.how == "native"}
    counts = dict(sorted(counts.items(), key=lambda item: -item[1]))
    prose(f"It took {sum(counts.values()):,} calls of {len(counts)} kernels:")
    print()
    bars(counts)
    return model, {"the pebble": losses, "norch's own CPU": reference}, counts


def kit(names: dict[str, Any]) -> None:
    chapter(7, "Is it right?")
    prose("""
        A network may learn on wrong numbers. norch brings the judge: a kit that holds every kernel against NumPy in
        float64, dtype by dtype, layout by layout, in nine levels. The first is memory and views, the second each
        primitive by value; of the latter we ask for those that we wrote.
    """)
    print()
    report(1)
    report(2, list(KERNELS))
    prose("""
        What level 1 misses it names: memory can hold more dtypes than our kernels know. Four of them are four letters
        more.
    """)
    play(
        """
        FORMATS |= {"uint8": "B", "int8": "b", "int16": "h", "int32": "i"}
        KINDS |= dict.fromkeys(FORMATS.keys() - KINDS.keys(), int)
        report(1)
        """,
        names,
    )
    missing = sorted(norch.backend.PRIMITIVES - set(KERNELS))
    prose(f"""
        So it goes on, from the lowest level up. {len(missing)} primitives are left to write: {", ".join(missing)}.
        docs/backends.md goes all the way, in an afternoon.
    """)


def report(level: int, ops: list[str] | None = None) -> None:
    """Tries the pebble at a level of the kit, and prints how it went."""
    found = conformance.run("pebble", (level,), ops)
    lines = found.text().splitlines()
    print("\n".join(f"    {line}" for line in lines if line.startswith("level ") and "ed" in line))
    for result in found.results:
        if result.error:
            print(f"        {result.case.id}")


def draw(model: nn.Module, losses: dict[str, list[float]], counts: dict[str, int], path: str) -> None:
    from matplotlib.figure import Figure  # not pyplot: no window, no display needed

    stone, ink = "#7b5ea7", "#d98c2b"
    figure = Figure(figsize=(10, 7.5), dpi=130, layout="constrained")
    figure.suptitle(f"A device of {LINES} lines of Python trains a network", fontsize=15, fontweight="bold")
    fit, curve, calls = figure.subplot_mosaic("ff;lc", height_ratios=[4, 3]).values()
    x = norch.linspace(0, 20, 401).unsqueeze(1)
    points = norch.linspace(0, 20, POINTS)
    with norch.no_grad():
        fitted = model(x.to("pebble")).cpu()
    fit.plot(x.flatten().numpy(), x.sin().square().flatten().numpy(), color="0.78", linewidth=5, label="sin(x)²")
    fit.plot(points.numpy(), points.sin().square().numpy(), "o", color="0.25", markersize=4, label=f"{POINTS} points")
    label = "what it learned: the mean (the article's model)"
    fit.plot(x.flatten().numpy(), fitted.flatten().numpy(), color=stone, linewidth=2, label=label)
    fit.set(xlabel="x", xlim=(0, 20), ylim=(-0.1, 1.15))
    fit.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)

    epochs = range(1, len(next(iter(losses.values()))) + 1)
    for (title, values), style in zip(losses.items(), ({"color": stone, "linewidth": 5, "alpha": 0.5}, {"color": ink})):
        curve.plot(epochs, values, label=title, **style)
    curve.set(xlabel="epoch", ylabel="mean loss", title="the same losses")
    curve.legend(frameon=False)

    names = list(counts)[::-1]
    calls.barh(names, [counts[name] for name in names], color=stone)
    calls.set(xlabel="calls in the training", title=f"{len(names)} kernels did it")
    for axes in (fit, curve, calls):
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build a device from nothing, in plain Python, and train on it.")
    parser.add_argument(
        "--epochs", type=int, choices=range(1, 1001), metavar="N", default=10, help="default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the initial weights (default: %(default)s)")
    parser.add_argument("--out", default="build_your_own_backend.png", help="the picture (default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    args = parse()
    print("BUILD YOUR OWN BACKEND")
    names = dict(globals())
    for part in (nothing, memory, kernels, tables, composites):
        part(names)
    model, losses, counts = training(args.epochs, args.seed)
    kit(names)
    try:
        draw(model, losses, counts, args.out)
    except OSError as error:
        print(f"no picture: {error}", file=sys.stderr)
        return 1
    print(f"\npicture: {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
