"""How options change what a tensor prints, against PyTorch 2.13 as in test_printing.py."""

import numpy as np
import pytest
from printed import Printed, case, check

from norch.dtype import get_default_dtype, set_default_dtype
from norch.tensor.printing import set_printoptions, tensor_repr

inf, nan = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def _defaults():
    before = get_default_dtype()
    set_printoptions(profile="default")
    yield
    set_printoptions(profile="default")
    set_default_dtype(before)


CASES = [
    case("precision", [1.0, 2.5], "float32", "tensor([1.00, 2.50])", precision=2),
    case("precision 0", [1.0, 2.6], "float32", "tensor([1, 3])", precision=0),
    case("sci_mode on", [1.0, 2.0, inf], "float32", "tensor([1.0000e+00, 2.0000e+00,        inf])", sci_mode=True),
    case("sci_mode on, zeros", [0.0], "float32", "tensor([0.])", sci_mode=True),
    case(
        "sci_mode off", [1.5, 1e5, 1e-6], "float32", "tensor([     1.5000, 100000.0000,      0.0000])", sci_mode=False
    ),
    case(
        "short",
        np.arange(1001.0) + 0.5,
        "float32",
        "tensor([5.00e-01, 1.50e+00,  ..., 1.00e+03, 1.00e+03])",
        profile="short",
    ),
    case(
        "full",
        np.arange(1001).reshape(7, 143)[:2, :9],
        "int64",
        """\
tensor([[  0,   1,   2,   3,   4,   5,
           6,   7,   8],
        [143, 144, 145, 146, 147, 148,
         149, 150, 151]])""",
        profile="full",
        linewidth=40,
    ),
    case(
        "narrow",
        [[1.0, 2.0]],
        "float32",
        """\
tensor([[1.,
         2.]])""",
        linewidth=5,
    ),
    case(
        "threshold and edgeitems",
        np.arange(9).reshape(1, 9, 1),
        "int64",
        """\
tensor([[[0],
         ...,
         [8]]])""",
        threshold=3,
        edgeitems=1,
    ),
    case("edgeitems 0", np.arange(10), "int64", "tensor([...], size=(10,))", edgeitems=0, threshold=5),
    case("edgeitems 0, short tensor", [1, 2], "int64", "tensor([1, 2], size=(2,))", edgeitems=0),
    case("default float64", [1.5], "float64", "tensor([1.5000])", default="float64"),
    case("not default float32", [1.5], "float32", "tensor([1.5000], dtype=norch.float32)", default="float64"),
    case(
        "notes, after a break, fit 46",
        np.arange(4.0) + 0.5,
        "float64",
        """\
tensor([0.5000, 1.5000, 2.5000, 3.5000],
       dtype=norch.float64, requires_grad=True)""",
        linewidth=46,
        requires_grad=True,
    ),
    case(
        "notes, after a break, at 45",
        np.arange(4.0) + 0.5,
        "float64",
        """\
tensor([0.5000, 1.5000, 2.5000, 3.5000],
       dtype=norch.float64,
       requires_grad=True)""",
        linewidth=45,
        requires_grad=True,
    ),
    case(
        "notes, one line, fit 58",
        [1.5],
        "float64",
        "tensor([1.5000], dtype=norch.float64, requires_grad=True)",
        linewidth=58,
        requires_grad=True,
    ),
    case(
        "notes, one line, at 57",
        [1.5],
        "float64",
        """\
tensor([1.5000], dtype=norch.float64,
       requires_grad=True)""",
        linewidth=57,
        requires_grad=True,
    ),
    case(
        "notes, one line, fit 38",
        [1.5],
        "float64",
        """\
tensor([1.5000], dtype=norch.float64,
       requires_grad=True)""",
        linewidth=38,
        requires_grad=True,
    ),
    case(
        "notes, one line, at 37",
        [1.5],
        "float64",
        """\
tensor([1.5000],
       dtype=norch.float64,
       requires_grad=True)""",
        linewidth=37,
        requires_grad=True,
    ),
    case(
        "notes, two lines, fit 60",
        [[1.5], [2.5]],
        "float64",
        """\
tensor([[1.5000],
        [2.5000]], dtype=norch.float64, requires_grad=True)""",
        linewidth=60,
        requires_grad=True,
    ),
    case(
        "notes, two lines, at 59",
        [[1.5], [2.5]],
        "float64",
        """\
tensor([[1.5000],
        [2.5000]], dtype=norch.float64,
       requires_grad=True)""",
        linewidth=59,
        requires_grad=True,
    ),
    case(
        "notes, two lines, fit 40",
        [[1.5], [2.5]],
        "float64",
        """\
tensor([[1.5000],
        [2.5000]], dtype=norch.float64,
       requires_grad=True)""",
        linewidth=40,
        requires_grad=True,
    ),
    case(
        "notes, two lines, at 39",
        [[1.5], [2.5]],
        "float64",
        """\
tensor([[1.5000],
        [2.5000]],
       dtype=norch.float64,
       requires_grad=True)""",
        linewidth=39,
        requires_grad=True,
    ),
    case(
        "notes, three notes, fit 65",
        np.zeros((0, 3)),
        "float64",
        "tensor([], size=(0, 3), dtype=norch.float64, requires_grad=True)",
        linewidth=65,
        requires_grad=True,
    ),
    case(
        "notes, three notes, at 64",
        np.zeros((0, 3)),
        "float64",
        """\
tensor([], size=(0, 3), dtype=norch.float64,
       requires_grad=True)""",
        linewidth=64,
        requires_grad=True,
    ),
    case(
        "notes, three notes, fit 45",
        np.zeros((0, 3)),
        "float64",
        """\
tensor([], size=(0, 3), dtype=norch.float64,
       requires_grad=True)""",
        linewidth=45,
        requires_grad=True,
    ),
    case(
        "notes, three notes, at 44",
        np.zeros((0, 3)),
        "float64",
        """\
tensor([], size=(0, 3),
       dtype=norch.float64,
       requires_grad=True)""",
        linewidth=44,
        requires_grad=True,
    ),
    case(
        "notes, three notes, fit 24",
        np.zeros((0, 3)),
        "float64",
        """\
tensor([], size=(0, 3),
       dtype=norch.float64,
       requires_grad=True)""",
        linewidth=24,
        requires_grad=True,
    ),
    case(
        "notes, three notes, at 23",
        np.zeros((0, 3)),
        "float64",
        """\
tensor([],
       size=(0, 3),
       dtype=norch.float64,
       requires_grad=True)""",
        linewidth=23,
        requires_grad=True,
    ),
]


@pytest.mark.parametrize(("tensor", "expected", "default", "options"), CASES)
def test_repr(tensor, expected, default, options):
    check(tensor, expected, default, options)


def test_options_stay_but_sci_mode():
    set_printoptions(precision=2, sci_mode=True)
    assert tensor_repr(Printed([1.5], "float32")) == "tensor([1.50e+00])"
    set_printoptions(edgeitems=2)
    assert tensor_repr(Printed([1.5], "float32")) == "tensor([1.50])"


def test_an_unknown_profile_changes_nothing():
    set_printoptions(precision=2, profile="long")
    assert tensor_repr(Printed([1.5], "float32")) == "tensor([1.50])"
