"""Strides, one idea at a time: how six numbers in a row are a matrix, its transpose, a slice, a repetition, windows.

Every view is read a second time by plain Python, from the row of numbers, shape, strides and offset alone. The picture
at the end shows the steps from the first matrix to the first copy.

    python examples/strides.py [--device cpu] [--out strides.svg]
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import Any

import norch


def chapter(number: int, title: str, text: str) -> None:
    print(f"\n{number}. {title}\n")
    print(textwrap.fill(" ".join(text.split()), 88) + "\n")


def read(storage: list[float], shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    """What a tensor shows of its storage, as nested lists. This is all that a strided tensor is."""
    if not shape:
        return storage[offset]
    return [read(storage, shape[1:], strides[1:], offset + i * strides[0]) for i in range(shape[0])]


def storage_of(x: norch.Tensor) -> list[float]:
    """The whole row of numbers that a tensor is on."""
    return norch.as_strided(x, (x.storage().size(),), (1,), 0).tolist()


different: list[str] = []


def show(name: str, x: norch.Tensor, whole: bool = True) -> None:
    """A tensor's place in memory, and whether plain Python reads the same there."""
    text = str(norch.explain(x, name=name)).splitlines()
    shown = text if whole else [line for line in text[:7] if line]
    print(textwrap.indent("\n".join(shown), "   "))
    found = read(storage_of(x), tuple(x.shape), x.stride(), x.storage_offset())
    verdict = "the same"
    if found != x.tolist():
        verdict = "DIFFERENT"
        different.append(name)
    print(f"\n   read by plain Python: {found}, {verdict}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="How strides turn a row of numbers into tensors.")
    parser.add_argument("--device", default="cpu", help="where to compute (default: %(default)s)")
    parser.add_argument("--out", default="strides.svg", help="the picture (default: %(default)s)")
    args = parser.parse_args()
    try:
        numbers = norch.tensor([0.0, 1, 2, 3, 4, 5], device=args.device)
    except norch.DeviceError as error:
        print(error, file=sys.stderr)
        return 2

    print("Strides, one idea at a time")
    chapter(
        1,
        "A matrix is a row of numbers",
        """
        Memory has one dim. A matrix of 2 x 3 is six numbers in a row, and a rule that says where the element (i, j) is:
        each dim has a stride, which is how far its next element lies. Here a row down is 3 numbers on, a column to the
        right is 1.""",
    )
    x = numbers.reshape(2, 3)
    show("x", x, whole=False)

    chapter(
        2,
        "A transpose moves nothing",
        """
        To exchange rows and columns it is enough to exchange the strides. x.T is another tensor on the same six
        numbers; who writes into one has written into the other.""",
    )
    y = x.T
    show("y", y, whole=False)
    y[0, 1] = 30
    print(f"   y[0, 1] = 30, and x[1, 0] is {x[1, 0].item():.0f}")
    y[0, 1] = 3

    chapter(
        3,
        "A slice begins elsewhere",
        """
        The second and third column: fewer elements, the same strides, and an offset, which says where the first element
        is. What the slice does not show is still there. Every other column: a stride of 2.""",
    )
    show("x[:, 1:]", x[:, 1:], whole=False)
    show("x[:, ::2]", x[:, ::2], whole=False)

    chapter(
        4,
        "A stride of 0 repeats",
        """
        To add a row to each row of a matrix, the row is expanded: its stride down is 0, so that every row is the same
        row. A million rows take no more memory than one. Writing into such a tensor is refused, since one number would
        be many elements.""",
    )
    row = norch.tensor([7.0, 8, 9], device=args.device)
    show("row.expand(4, 3)", row.expand(4, 3), whole=False)

    chapter(
        5,
        "Windows overlap",
        """
        Two dims may have the same stride. Windows of three numbers, each one further on, are a matrix whose rows share
        their elements; a product of that matrix and a kernel is a convolution.""",
    )
    windows = numbers.unfold(0, 3, 1)
    show("numbers.unfold(0, 3, 1)", windows, whole=False)
    kernel = [1.0, 2.0, 3.0]
    values = numbers.tolist()
    slow = [sum(values[i + k] * kernel[k] for k in range(3)) for i in range(4)]
    fast = (windows @ norch.tensor(kernel, device=args.device)).tolist()
    print(f"   windows @ {kernel} = {fast}; by loops: {slow}")
    if fast != slow:
        different.append("windows @ kernel")

    chapter(
        6,
        "When there has to be a copy",
        """
        A reshape keeps the elements in their row-major order. Where strides can step through memory in that order, the
        result is a view; dims merge where the outer stride is the inner one times its size. After a transpose they do
        not: the numbers are wanted in the order 0, 3, 1, 4, 2, 5, and no single stride goes that way. So reshape
        copies, and view, which never does, refuses.""",
    )
    walk = norch.explain(lambda: x.T.reshape(6))
    print(textwrap.indent(str(walk), "   ") + "\n")
    try:
        y.view(6)
    except norch.ShapeError as error:
        print(textwrap.indent(f"y.view(6):\n{error}", "   "))

    chapter(7, "All that there is to know about y", "norch.explain(y) tells it of any tensor:")
    show("y", y)
    if different:
        print(f"DIFFERENT: {', '.join(different)}", file=sys.stderr)
        return 1
    try:
        walk.save(args.out)
    except OSError as error:
        print(f"no picture: {error}", file=sys.stderr)
        return 1
    print(f"picture: {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
