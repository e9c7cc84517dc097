"""Errors of the backward pass name lines of the program: the oracle is the text of this file."""

import inspect
import re

import pytest

import norch
from norch.autograd import graph, lines, record_lines
from norch.autograd.graph import Node


@pytest.fixture(autouse=True)
def recorded():
    with record_lines(True):
        yield


def row(what, text):
    """The row of an error about the line of this file that ends in `# text`."""
    source, first = inspect.getsourcelines(inspect.getmodule(row))
    at = next(i for i, line in enumerate(source, 1) if line.rstrip().endswith(f"# {text}"))
    return rf"{what} +test_error_lines.py:{at} in \S+ +{re.escape(source[at - 1].strip())}"


def weight(*shape):
    return norch.ones(*shape or (3,), requires_grad=True)


@pytest.mark.parametrize("change", ["add_", "mul_", "zero_", "fill_", "copy_", "__setitem__", "exp_"])
def test_an_in_place_error_names_both_lines(change):
    w, x = weight(), norch.ones(3)
    y = w * x  # saves
    arguments = {"zero_": (), "exp_": (), "copy_": (norch.zeros(3),), "__setitem__": (0, 2.0)}.get(change, (2.0,))
    getattr(x, change)(*arguments)  # changes
    with pytest.raises(norch.AutogradError, match="mul needs its input of shape .* has changed it in place") as error:
        y.sum().backward()
    assert error.match(row("saved by mul", "saves"))
    assert error.match(row(f"changed by {change}", "changes"))


def test_a_recorded_change_and_a_saved_result():
    y = weight().exp()  # makes
    y += 1  # adds
    with pytest.raises(norch.AutogradError, match="exp needs its result") as error:
        y.sum().backward()
    assert error.match(row("saved by exp", "makes"))
    assert error.match(row("changed by (__iadd__|add_)", "adds"))


def test_an_op_with_several_results():
    x = weight(2, 3)
    values, _ = norch.sort(x, dim=1)  # sorted
    assert values.grad_fn.line.text().endswith("# sorted")


def test_a_step_of_an_optimiser_is_a_change():
    w = weight()
    y = (w * w).sum()  # squares
    norch.sgd_step_([w.detach()], [norch.ones(3)], lr=0.1)  # steps
    with pytest.raises(norch.AutogradError, match="mul needs its input") as error:
        y.backward()
    assert error.match(row("saved by mul", "squares"))
    assert error.match(row("changed by sgd_step_", "steps"))


@pytest.mark.parametrize("again", ["backward", "grad", "other"])
def test_a_second_backward_names_the_call_that_freed_the_graph(again):
    w = weight()
    hidden = w.exp()  # shared
    loss = hidden.sum()
    loss.backward()  # frees
    with pytest.raises(norch.AutogradError, match="differentiated before; pass retain_graph=True .* detach") as error:
        if again == "backward":
            loss.backward()
        elif again == "grad":
            norch.autograd.grad(loss, w)
        else:
            (hidden * 2).sum().backward()
    assert error.match(row("saved by exp", "shared"))
    assert error.match(row("freed by", "frees"))


def test_without_recorded_lines_errors_say_how_to_get_them():
    with record_lines(False):
        w, x = weight(), norch.ones(3)
        loss = w.exp().sum()
        loss.backward()
        with pytest.raises(norch.AutogradError) as error:
            loss.backward()
        assert error.match(r"saved by exp +norch\.autograd\.record_lines\(True\) before would tell the line")
        assert error.match(r"freed by +norch\.autograd\.record_lines\(True\) before would tell the line")
        y = w * x
        x.add_(1)
        with pytest.raises(norch.AutogradError, match=r"changed by add_ +norch\.autograd\.record_lines\(True\)"):
            y.sum().backward()


def test_custom_functions():
    class Square(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad

    x = weight() * 1
    y = Square.apply(x).sum()  # applied
    y.backward()  # once
    with pytest.raises(norch.AutogradError, match="what Square saved .* is gone") as error:
        y.backward()
    assert error.match(row("saved by Square", "applied"))
    assert error.match(row("freed by", "once"))
    y = Square.apply(x).sum()
    x.detach().add_(1)  # moved
    with pytest.raises(norch.AutogradError, match="Square saved a tensor .* changed in place since") as error:
        y.backward()
    assert error.match(row("changed by add_", "moved"))


def test_a_node_knows_its_line_where_lines_are_recorded():
    with record_lines(False):
        assert (weight() * 2).grad_fn.line is None
        assert weight().node.line is None
    y = weight().T  # view
    assert y.grad_fn.line.text().endswith("# view")


def test_only_the_first_nodes_know_their_line_unless_asked(monkeypatch):
    monkeypatch.setattr(lines, "_left", 3)
    lines._choose(lines.EarlyNode, lines._early_line)
    w = weight()
    known = [(w * 2).grad_fn.line is not None for _ in range(5)]
    assert known == [True, True, True, False, False]
    assert graph.node_class is Node
    assert type((w * 2).grad_fn) is Node


def test_modes_nest_and_may_be_set_for_good():
    def known():
        return (weight() * 2).grad_fn.line is not None

    with record_lines(False):
        assert not known()
        with record_lines(True):
            assert known()
        assert not known()
        record_lines(True)
        assert known()
    assert known()


def test_what_is_lent_ends_with_what_somebody_asks_for():
    with record_lines(False):
        lines.lend()
        assert (weight() * 2).grad_fn.line is not None
        with record_lines(True):
            lines.take_back()
            assert (weight() * 2).grad_fn.line is not None
        assert graph.node_class is Node
        lines.lend()
        lines.take_back()
        assert graph.node_class is Node
