"""Shape errors draw the shapes, with a mark under the dims that disagree: what they print, written by hand."""

from random import Random
from textwrap import dedent

import pytest

import norch
from norch import zeros
from norch.errors import differing, drawn


def raised(call):
    with pytest.raises(norch.ShapeError) as error:
        call()
    first, _, rest = str(error.value).partition("\n")
    return first, "\n" + dedent(rest)


CASES = {
    "broadcasting": (
        lambda: zeros(2, 3, 4) + zeros(5, 4),
        "add(): shapes (2, 3, 4) and (5, 4) do not broadcast: dim -2 has sizes 3 and 5",
        """
        input   (2, 3, 4)
        other      (5, 4)
                    ^
        """,
    ),
    "in place": (
        lambda: zeros(2, 3).mul_(zeros(12, 3)),
        "mul(): shapes (2, 3) and (12, 3) do not broadcast: dim -2 has sizes 2 and 12",
        """
        input   ( 2, 3)
        other   (12, 3)
                 ^^
        """,
    ),
    "three operands": (
        lambda: norch.where(zeros(2) > 0, zeros(4, 3), zeros(())),
        "where(): shapes (2,) and (4, 3) and () do not broadcast: dim -1 has sizes 2 and 3",
        """
        operand 0      (2,)
        operand 1   (4, 3)
                        ^
        operand 2         ()
        """,
    ),
    "matmul": (
        lambda: zeros(2, 30) @ zeros(5, 4),
        "matmul(): shapes (2, 30) and (5, 4) do not match: 30 columns, 5 rows",
        """
        input   (2, 30)
                    ^^
        other   (5,  4)
                 ^
        """,
    ),
    "matrix and vector": (
        lambda: zeros(2, 3) @ zeros(4),
        "matmul(): shapes (2, 3) and (4,) do not match: 3 columns, 4 rows",
        """
        input   (2, 3)
        other      (4,)
                    ^
        """,
    ),
    "mm": (
        lambda: norch.mm(zeros(2, 3), zeros(4, 5)),
        "mm(): shapes (2, 3) and (4, 5) do not match",
        """
        input   (2, 3)
                    ^
        mat2    (4, 5)
                 ^
        """,
    ),
    "cat": (
        lambda: norch.cat([zeros(2, 3), zeros(2, 3), zeros(3, 4)]),
        "cat(): shapes (2, 3) and (3, 4) differ outside dim 0",
        """
        tensors[0]   (2, 3)
        tensors[2]   (3, 4)
                         ^
        """,
    ),
    "stack": (
        lambda: norch.stack([zeros(2, 3), zeros(1, 3)]),
        "stack(): shapes (2, 3) and (1, 3) differ",
        """
        tensors[0]   (2, 3)
        tensors[1]   (1, 3)
                      ^
        """,
    ),
    "linear": (
        lambda: norch.linear(zeros(8, 30), zeros(10, 20)),
        "linear(): input (8, 30) does not fit weight (10, 20): expected (..., in) and (out, in)",
        """
        input    ( 8, 30)
        weight   (10, 20)
                      ^^   (out, in)
        """,
    ),
    "convolution": (
        lambda: norch.conv2d(zeros(1, 4, 9, 9), zeros(8, 3, 3, 3)),
        "conv2d(): 4 channels of input (1, 4, 9, 9) do not fit weight (8, 3, 3, 3), which is (out, in / groups, "
        "*kernel), with groups 1",
        """
        input    (1, 4, 9, 9)
        weight   (8, 3, 3, 3)
                     ^   (out, in / groups)
        """,
    ),
    "bias": (
        lambda: norch.conv1d(zeros(1, 4, 9), zeros(8, 4, 3), zeros(7)),
        "conv1d(): bias (7,) does not fit 8 channels",
        """
        weight   (8, 4, 3)
                  ^
        bias           (7,)
                        ^
        """,
    ),
    "transposed convolution": (
        lambda: norch.conv_transpose2d(zeros(1, 4, 9, 9), zeros(3, 8, 3, 3)),
        "conv_transpose2d(): 4 channels of input (1, 4, 9, 9) do not fit weight (3, 8, 3, 3), which is (in, out / "
        "groups, *kernel), with groups 1",
        """
        input    (1, 4, 9, 9)
                     ^
        weight   (3, 8, 3, 3)
                  ^   (in, out / groups)
        """,
    ),
    "view": (
        lambda: zeros(2, 3, 4).transpose(0, 2).view(-1),
        "view(): shape (4, 3, 2) with strides (1, 4, 12) cannot be viewed as (-1,); use reshape, which copies",
        """
        shape     (4, 3,  2)
        strides   (1, 4, 12)
                   ^  ^  ^^   do not follow each other in memory
        """,
    ),
    "view of a part": (
        lambda: zeros(2, 3, 4)[:, :2].view(4, 4),
        "view(): shape (2, 2, 4) with strides (12, 4, 1) cannot be viewed as (4, 4); use reshape, which copies",
        """
        shape     ( 2, 2, 4)
        strides   (12, 4, 1)
                   ^^  ^   do not follow each other in memory
        """,
    ),
    "reshape": (
        lambda: zeros(2, 3).reshape(4, 2),
        "reshape(): shape (4, 2) does not fit 6 elements of shape (2, 3)",
        """
        2*3 = 6, not 4*2 = 8
        """,
    ),
    "reshape with -1": (
        lambda: zeros(2, 3).reshape(4, -1),
        "reshape(): shape (4, -1) does not fit 6 elements of shape (2, 3)",
        """
        2*3 = 6, which 4 does not divide
        """,
    ),
    "loss": (
        lambda: norch.mse_loss(zeros(8, 1), zeros(8)),
        "mse_loss(): input (8, 1) and target (8,) differ in shape; reshape one, or pass strict=False to let them "
        "broadcast",
        """
        input    (8, 1)
                  ^  ^
        target      (8,)
                     ^   broadcast, they would give (8, 8)
        """,
    ),
    "classes": (
        lambda: norch.cross_entropy(zeros(8, 10, 5, 5), zeros(8, 5, 4, dtype=norch.int64)),
        "cross_entropy(): target (8, 5, 4) does not fit input (8, 10, 5, 5): expected (n, ...) for (n, classes, ...), "
        "or () for (classes)",
        """
        input    (8, 10, 5, 5)
        target      ( 8, 5, 4)
                            ^
        """,
    ),
    "expand": (
        lambda: zeros(2, 3).expand(4, 3),
        "expand(): shape (2, 3) does not expand to (4, 3)",
        """
        input   (2, 3)
        size    (4, 3)
                 ^
        """,
    ),
    "layer_norm": (
        lambda: norch.layer_norm(zeros(2, 4), (5,)),
        "layer_norm(): input (2, 4) does not end in normalized_shape (5,)",
        """
        input              (2, 4)
        normalized_shape      (5,)
                               ^
        """,
    ),
    "attention": (
        lambda: norch.scaled_dot_product_attention(zeros(2, 3, 8), zeros(2, 5, 8), zeros(2, 6, 8)),
        "scaled_dot_product_attention(): shapes (2, 3, 8) and (2, 5, 8) and (2, 6, 8) do not fit: expected (..., l, "
        "e) and (..., s, e) and (..., s, v)",
        """
        key     (2, 5, 8)
        value   (2, 6, 8)
                    ^
        """,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_drawn_shapes(name):
    call, first, picture = CASES[name]
    assert raised(call) == (first, dedent(picture).rstrip())


def test_marks_stand_below_their_dims():
    """Of shapes of any sizes: a mark below each digit of the marked dims, and nowhere else."""
    random = Random(0)
    for _ in range(200):
        rows = []
        for name in ("a", "bcd")[: random.randint(1, 2)]:
            shape = [random.choice([0, 1, 7, 10, 123]) for _ in range(random.randint(0, 4))]
            rows.append((name, shape, [i for i in range(len(shape)) if random.random() < 0.5]))
        lines = drawn(*rows).split("\n")[1:]
        texts = [line for line in lines if "(" in line]
        assert len(texts) == len(rows)
        for (name, shape, _), text in zip(rows, texts, strict=True):
            assert text.split("(")[0].strip() == name
            assert [int(n) for n in text.split("(")[1].strip("),").split(",") if n.strip()] == shape
        if len(rows) == 1 and rows[0][2]:
            (text, marks), (_, shape, dims) = lines, rows[0]
            expected = {i for at, part in enumerate(digits(text)) if at in dims for i in part}
            assert {i for i, c in enumerate(marks) if c == "^"} == expected


def digits(text):
    """Where the digits of each number of a row are."""
    found, start = [], text.index("(") + 1
    for part in text[start:].rstrip("),").split(","):
        places = [start + i for i, c in enumerate(part) if c.isdigit()]
        found.append(places)
        start += len(part) + 1
    return found


def test_dims_that_differ():
    assert differing((2, 3), (2, 4)) == [-1]
    assert differing((5, 2, 3), (2, 3)) == [-3]
    assert differing((), ()) == []
