"""norch.explain of a function: whether each step is a view or a copy is what NumPy says of the same calls."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
import pytest

import norch

CALLS: dict[str, Callable[[Any], Any]] = {
    "x.T": lambda x: x.T,
    "x[1:]": lambda x: x[1:],
    "x[:, ::2]": lambda x: x[:, ::2],
    "x[1]": lambda x: x[1],
    "x.reshape(3, 2)": lambda x: x.reshape(3, 2),
    "x.reshape(-1)": lambda x: x.reshape(-1),
    "x.squeeze()": lambda x: x.squeeze(),
    "x.swapaxes(0, 1)": lambda x: x.swapaxes(0, 1),
    "x.T.reshape(6)": lambda x: x.T.reshape(6),
    "x.T.reshape(3, 2, 1)": lambda x: x.T.reshape(3, 2, 1),
    "x[:, 1:].reshape(4)": lambda x: x[:, 1:].reshape(4),
    "x[:, :1].reshape(2)": lambda x: x[:, :1].reshape(2),
    "x.diagonal()": lambda x: x.diagonal(),
    "x + 1": lambda x: x + 1,
    "x.sum(0)": lambda x: x.sum(0),
}


@pytest.mark.parametrize("name", CALLS)
def test_views_and_copies_are_numpys(name: str) -> None:
    array = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    x, function = norch.tensor(array), CALLS[name]
    found = norch.explain(lambda: function(x))
    last, result = found.steps[-1], function(array)
    assert last.call == name
    assert (last.kind == "view") == np.may_share_memory(result, array)
    assert last.after.spec.shape == result.shape
    if last.kind == "view":
        assert last.after.spec.strides == tuple(s // 4 for s in result.strides)
        assert last.after.offset == (result.ctypes.data - array.ctypes.data) // 4
        assert last.nbytes == 0
    else:
        assert last.nbytes == result.nbytes
    assert {c.index: float(c.value) for c in last.after.cells if c.count} == dict(np.ndenumerate(result))
    assert all(step.kind == "view" for step in found.steps[:-1])


def test_the_text_of_a_walk() -> None:
    x = norch.arange(6.0).reshape(2, 3)
    assert str(norch.explain(lambda: x.T.reshape(6))) == (
        "   x: float32, shape (2, 3), strides (3, 1), offset 0\n"
        "\n"
        "1  x.T\n"
        "   view      shape (3, 2), strides (1, 3), offset 0\n"
        "             the dims change places, each with its stride; no byte moves\n"
        "\n"
        "2  x.T.reshape(6)\n"
        "   copy      shape (6,), strides (1,), offset 0\n"
        "             24 bytes: dims 0 and 1 do not merge (stride 1 is not 2 x 3): in row-major order the\n"
        "             elements are at 0, 3, 1, 4, 2, 5\n"
        "\n"
        "2 steps: 1 view, 1 copy; 24 bytes of new results"
    )


def test_an_error_is_the_last_step() -> None:
    x = norch.arange(6.0).reshape(2, 3)
    found = norch.explain(lambda: x.T.view(6))
    assert [(s.call, s.kind) for s in found.steps] == [("x.T", "view"), ("x.T.view(6)", "raises")]
    assert found.steps[-1].why.startswith("ShapeError: view(): shape (3, 2) with strides (1, 3)")
    lines = str(found).splitlines()
    at = next(i for i, line in enumerate(lines) if line.endswith("shape     (3, 2)"))  # what the message draws
    assert lines[at + 1].index("(1, 3)") == lines[at].index("(3, 2)")
    ET.fromstring(found.svg())
    found = norch.explain(lambda: x @ x)
    assert [(s.call, s.kind) for s in found.steps] == [("x @ x", "raises")]
    with pytest.raises(ZeroDivisionError):
        norch.explain(lambda: 1 / 0)


def test_steps_of_functions_that_the_function_calls() -> None:
    x = norch.arange(4.0)

    def twice(t: norch.Tensor) -> norch.Tensor:
        for _ in range(2):
            t = t.reshape(2, 2)
        return t

    found = norch.explain(lambda: twice(x) * 2)
    assert [s.call for s in found.steps] == ["t.reshape(2, 2)", "t.reshape(2, 2)", "twice(x) * 2"]


@pytest.mark.parametrize(
    ("change", "call"),
    [
        (lambda x: x.add_(1), "x.add_(1)"),
        (lambda x: x.copy_(x + 1), "x.copy_(x + 1)"),
        (lambda x: x[0].zero_(), "x[0].zero_()"),
    ],
)
def test_changes_in_place(change: Callable[[norch.Tensor], Any], call: str) -> None:
    x = norch.arange(4.0).reshape(2, 2)
    last = norch.explain(lambda: change(x)).steps[-1]
    assert (last.call, last.kind, last.nbytes) == (call, "in place", 0)


def test_an_assignment_to_a_part() -> None:
    x = norch.arange(4.0).reshape(2, 2)

    def assign() -> None:
        x[0] = 5

    (step,) = norch.explain(assign).steps
    assert (step.call, step.kind) == ("x[0] = ...", "in place")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x[1:], "fewer of the elements, from offset 3; no byte moves"),
        (lambda x: x.unsqueeze(0), "dims of size 1 come or go"),
        (lambda x: x.expand(4, 2, 3), "a stride of 0 shows the same elements again; no byte moves"),
        (lambda x: x.unfold(1, 2, 1), "windows that share their elements; no byte moves"),
        (lambda x: x.reshape(6), "the strides (1,) show the elements in the same order; no byte moves"),
        (lambda x: x.view(norch.int32), "the same bytes, read as int32"),
        (lambda x: x.to(norch.float64), "48 bytes: float64 takes other bytes than float32"),
        (lambda x: x.clone(), "24 bytes: a copy is what was asked for"),
        (lambda x: x.T.contiguous(), "24 bytes: the strides of a contiguous (3, 2) are (2, 1), not (1, 3)"),
        (lambda x: x.exp(), "24 bytes of new memory"),
    ],
)
def test_reasons(function: Callable[[norch.Tensor], Any], why: str) -> None:
    x = norch.arange(6.0).reshape(2, 3)
    assert norch.explain(lambda: function(x)).steps[-1].why == why


def test_the_dims_that_are_in_the_way_of_a_view() -> None:
    x = norch.zeros(2, 3, 4, 5).transpose(1, 2)  # strides 60, 5, 20, 1
    for shape, dims in (((2, 12, 5), "1 and 2"), ((8, 3, 5), "0 and 1"), ((2, 4, 15), "2 and 3"), ((-1,), "0 and 1")):
        step = norch.explain(lambda shape=shape: x.reshape(shape)).steps[-1]
        assert step.kind == "copy"
        assert f"dims {dims} do not merge" in step.why
    assert norch.explain(lambda: x.reshape(2, 2, 2, 3, 5)).steps[-1].kind == "view"


def test_what_a_copy_ran() -> None:
    x = norch.arange(6.0).reshape(2, 3).T
    assert norch.explain(lambda: x.reshape(6)).steps[0].ops == ("reshape", "copy", "reshape")


def test_nothing_is_kept_and_nothing_observed_after_it() -> None:
    x = norch.arange(6.0)
    made: list[Any] = []

    def function() -> None:
        y = x * 2
        made.append(ref(y))
        y.view(4)

    found = norch.explain(function)
    assert found.steps[-1].kind == "raises"
    assert made[0]() is None
    assert not hasattr(norch.Tensor.view, "_unobserved")
    before = len(found.steps)
    x.reshape(2, 3)
    assert len(found.steps) == before


def test_long_walks_are_cut() -> None:
    x = norch.zeros(1)

    def function() -> None:
        for _ in range(250):
            x.reshape(1, 1)

    found = norch.explain(function)
    assert (len(found.steps), found.left_out) == (200, 50)
    assert "and 50 steps more" in str(found)


def test_backward_and_no_ops_at_all() -> None:
    x = norch.ones(2, requires_grad=True)
    found = norch.explain(lambda: (x * x).sum().backward())
    assert [s.call for s in found.steps] == ["x * x", "(x * x).sum()", "(x * x).sum().backward()"]
    assert x.grad.tolist() == [2, 2]
    assert str(norch.explain(lambda: 3)) == "no op of norch was called"


def test_pictures(tmp_path: Any) -> None:
    x = norch.arange(6.0).reshape(2, 3)
    found = norch.explain(lambda: x.T.reshape(6))
    found.save(tmp_path / "walk.svg")
    texts = [t.text for t in ET.parse(tmp_path / "walk.svg").getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert {"1  x.T", "2  x.T.reshape(6)", "copy: shape (6,), strides (1,), offset 0"} <= set(texts)
    assert ET.fromstring(found._repr_html_()).tag.endswith("svg")
