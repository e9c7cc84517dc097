"""What a tensor prints, against PyTorch 2.13: each expected text is what it printed, with its names made ours."""

import numpy as np
import pytest
from printed import Printed, case, check

import norch
from norch.dtype import get_default_dtype, set_default_dtype
from norch.tensor.printing import format_array, set_printoptions, tensor_repr

inf, nan = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def _defaults():
    before = get_default_dtype()
    set_printoptions(profile="default")
    yield
    set_printoptions(profile="default")
    set_default_dtype(before)


CASES = [
    case("integral floats", [1.0, 2.0], "float32", "tensor([1., 2.])"),
    case("fractions", [1.5, -2.25, 100.125], "float32", "tensor([  1.5000,  -2.2500, 100.1250])"),
    case("0-d float", 3.14159265, "float32", "tensor(3.1416)"),
    case("0-d integral float", 2.0, "float32", "tensor(2.)"),
    case("0-d int", 7, "int64", "tensor(7)"),
    case("0-d bool", True, "bool", "tensor(True)"),
    case("0-d inf", inf, "float32", "tensor(inf)"),
    case("0-d float64", 0.5, "float64", "tensor(0.5000, dtype=norch.float64)"),
    case("zeros", [0.0, 0.0], "float32", "tensor([0., 0.])"),
    case("minus zero sticks out", [-0.0, 0.0], "float32", "tensor([-0., 0.])"),
    case("zero does not count", [0.0, 0.5], "float32", "tensor([0.0000, 0.5000])"),
    case("bools", [True, False], "bool", "tensor([ True, False])"),
    case(
        "ints",
        [[1, -20], [300, 4]],
        "int64",
        """\
tensor([[  1, -20],
        [300,   4]])""",
    ),
    case("int limits", [-(2**63), 2**63 - 1], "int64", "tensor([-9223372036854775808,  9223372036854775807])"),
    case("uint8", [255, 0], "uint8", "tensor([255,   0], dtype=norch.uint8)"),
    case("int32", [1, 2], "int32", "tensor([1, 2], dtype=norch.int32)"),
    case("float16", [0.1, 1 / 3], "float16", "tensor([0.1000, 0.3333], dtype=norch.float16)"),
    case("bfloat16", [0.1, 1 / 3], "bfloat16", "tensor([0.1001, 0.3340], dtype=norch.bfloat16)"),
    case(
        "3-d",
        np.arange(8.0).reshape(2, 2, 2),
        "float32",
        """\
tensor([[[0., 1.],
         [2., 3.]],

        [[4., 5.],
         [6., 7.]]])""",
    ),
    case(
        "4-d",
        np.arange(4.0).reshape(2, 2, 1, 1) - 0.5,
        "float32",
        """\
tensor([[[[-0.5000]],

         [[ 0.5000]]],


        [[[ 1.5000]],

         [[ 2.5000]]]])""",
    ),
    case("inf with integral", [inf, 1.0], "float32", "tensor([inf, 1.])"),
    case("inf with fractions", [inf, 1.5, nan, -inf], "float32", "tensor([   inf, 1.5000,    nan,   -inf])"),
    case("only nan", [nan, nan], "float32", "tensor([nan, nan])"),
    case("ratio 1000", [1.0, 1000.0], "float32", "tensor([   1., 1000.])"),
    case("ratio over 1000", [1.0, 1001.0], "float32", "tensor([1.0000e+00, 1.0010e+03])"),
    case("large 1e8", [1e8], "float32", "tensor([100000000.])"),
    case("large over 1e8", [1e9, inf], "float32", "tensor([1.0000e+09,        inf])"),
    case("small", [0.00005, 0.0], "float32", "tensor([5.0000e-05, 0.0000e+00])"),
    case("small but enough", [0.00015], "float32", "tensor([0.0002])"),
    case("subnormal", [5e-324, 1e308], "float64", "tensor([4.9407e-324, 1.0000e+308], dtype=norch.float64)"),
    case("empty", [], "float32", "tensor([])"),
    case("empty 2-d", np.zeros((0, 3)), "float32", "tensor([], size=(0, 3))"),
    case("empty int64", [], "int64", "tensor([], dtype=norch.int64)"),
    case(
        "empty 2-d float64, grad",
        np.zeros((2, 0)),
        "float64",
        "tensor([], size=(2, 0), dtype=norch.float64, requires_grad=True)",
        requires_grad=True,
    ),
    case(
        "wrapped",
        np.arange(13.0) + 0.5,
        "float32",
        """\
tensor([ 0.5000,  1.5000,  2.5000,  3.5000,  4.5000,  5.5000,  6.5000,  7.5000,
         8.5000,  9.5000, 10.5000, 11.5000, 12.5000])""",
    ),
    case(
        "wrapped bools",
        np.arange(14) % 2 == 0,
        "bool",
        """\
tensor([ True, False,  True, False,  True, False,  True, False,  True, False,
         True, False,  True, False])""",
    ),
    case("threshold not passed", np.arange(8), "int64", "tensor([0, 1, 2, 3, 4, 5, 6, 7])", threshold=8),
    case(
        "dim too short to cut",
        np.arange(24).reshape(4, 6),
        "int64",
        """\
tensor([[ 0,  1,  2,  3,  4,  5],
        [ 6,  7,  8,  9, 10, 11],
        [12, 13, 14, 15, 16, 17],
        [18, 19, 20, 21, 22, 23]])""",
        threshold=5,
    ),
    case("summary 1-d", np.arange(1001), "int64", "tensor([   0,    1,    2,  ...,  998,  999, 1000])"),
    case(
        "summary 2-d",
        np.arange(2000).reshape(20, 100),
        "int64",
        """\
tensor([[   0,    1,    2,  ...,   97,   98,   99],
        [ 100,  101,  102,  ...,  197,  198,  199],
        [ 200,  201,  202,  ...,  297,  298,  299],
        ...,
        [1700, 1701, 1702,  ..., 1797, 1798, 1799],
        [1800, 1801, 1802,  ..., 1897, 1898, 1899],
        [1900, 1901, 1902,  ..., 1997, 1998, 1999]])""",
    ),
    case(
        "summary of rows only",
        np.arange(1002.0).reshape(501, 2) / 2,
        "float32",
        """\
tensor([[0.0000e+00, 5.0000e-01],
        [1.0000e+00, 1.5000e+00],
        [2.0000e+00, 2.5000e+00],
        ...,
        [4.9800e+02, 4.9850e+02],
        [4.9900e+02, 4.9950e+02],
        [5.0000e+02, 5.0050e+02]])""",
    ),
    case(
        "summary 3-d",
        np.arange(2700).reshape(3, 30, 30),
        "int64",
        """\
tensor([[[   0,  ...,   29],
         ...,
         [ 870,  ...,  899]],

        ...,

        [[1800,  ..., 1829],
         ...,
         [2670,  ..., 2699]]])""",
        edgeitems=1,
    ),
    case(
        "summary sees the edges only",
        np.where(np.arange(2000) == 1000, 1e10, 1.0),
        "float32",
        "tensor([1., 1., 1.,  ..., 1., 1., 1.])",
    ),
    case(
        "summary of floats",
        np.linspace(-1.0, 1.0, 1600).reshape(40, 40),
        "float64",
        """\
tensor([[-1.0000, -0.9987, -0.9975,  ..., -0.9537, -0.9525, -0.9512],
        [-0.9500, -0.9487, -0.9475,  ..., -0.9037, -0.9024, -0.9012],
        [-0.8999, -0.8987, -0.8974,  ..., -0.8537, -0.8524, -0.8512],
        ...,
        [ 0.8512,  0.8524,  0.8537,  ...,  0.8974,  0.8987,  0.8999],
        [ 0.9012,  0.9024,  0.9037,  ...,  0.9475,  0.9487,  0.9500],
        [ 0.9512,  0.9525,  0.9537,  ...,  0.9975,  0.9987,  1.0000]],
       dtype=norch.float64)""",
    ),
    case("leaf", [1.0, 2.0], "float32", "tensor([1., 2.], requires_grad=True)", requires_grad=True),
    case("grad_fn", [1.0, 2.0], "float32", "tensor([1., 2.], grad_fn=<mul_backward>)", grad_fn="mul_backward"),
    case(
        "note fits the line",
        np.arange(6.0) + 0.5,
        "float64",
        """\
tensor([0.5000, 1.5000, 2.5000, 3.5000, 4.5000, 5.5000], dtype=norch.float64,
       requires_grad=True)""",
        requires_grad=True,
    ),
    case(
        "notes wrap",
        np.arange(7.0) + 0.5,
        "float64",
        """\
tensor([0.5000, 1.5000, 2.5000, 3.5000, 4.5000, 5.5000, 6.5000],
       dtype=norch.float64, requires_grad=True)""",
        requires_grad=True,
    ),
    case(
        "notes wrap after lines",
        np.arange(13.0) + 0.5,
        "float16",
        """\
tensor([ 0.5000,  1.5000,  2.5000,  3.5000,  4.5000,  5.5000,  6.5000,  7.5000,
         8.5000,  9.5000, 10.5000, 11.5000, 12.5000], dtype=norch.float16,
       grad_fn=<mul_backward>)""",
        grad_fn="mul_backward",
    ),
]


@pytest.mark.parametrize(("tensor", "expected", "default", "options"), CASES)
def test_repr(tensor, expected, default, options):
    check(tensor, expected, default, options)


def test_device_comes_first():
    # The order is that of PyTorch's meta tensors, which print no values: device, size, dtype, requires_grad.
    assert tensor_repr(Printed([1.0], "float32", device="cuda:0")) == "tensor([1.], device='cuda:0')"
    empty = Printed(np.zeros((0, 3)), "float64", requires_grad=True, device="cuda:1")
    set_printoptions(linewidth=120)
    expected = "tensor([], device='cuda:1', size=(0, 3), dtype=norch.float64, requires_grad=True)"
    assert tensor_repr(empty) == expected


def test_strided_values():
    values = np.arange(6).reshape(2, 3).T[::-1]
    assert format_array(values, 0) == "[[2, 5],\n [1, 4],\n [0, 3]]"


def test_only_the_edges_are_read():
    """A view of 8 TB prints: nothing but the elements shown is converted."""
    huge = np.broadcast_to(np.float64(1.0), (10**6, 10**6))
    assert format_array(huge, 0).startswith("[[1., 1., 1.,  ..., 1., 1., 1.],\n")


def test_a_class_says_what_stands_for_values() -> None:
    class Wrapped(norch.Tensor):
        def __repr__(self) -> str:
            return super().__repr__(tensor_contents="of a file")

    wrapped = norch.ones(2, dtype=norch.float64).as_subclass(Wrapped)
    assert repr(wrapped) == "Wrapped(of a file, dtype=norch.float64)"
    assert repr(wrapped.requires_grad_()) == "Wrapped(of a file, dtype=norch.float64, requires_grad=True)"
