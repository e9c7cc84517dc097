"""The lines of the program that norch.graph names."""

import linecache

import pytest

import norch


@pytest.fixture
def program(tmp_path):
    """Runs the text of a program, and returns its variables."""

    def run(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        linecache.checkcache(str(path))
        variables = {"norch": norch, "__name__": "program"}
        with norch.autograd.record_lines(True):
            exec(compile(text, str(path), "exec"), variables)
        return variables

    return run


def test_lines_of_nodes_with_their_text(program):
    found = program("""\
x = norch.ones(3, requires_grad=True)
y = x.exp()

def total(values):
    return (values * values).sum()

loss = total(y)
graph = norch.graph(loss)
""")
    graph = found["graph"]
    assert {n.op: str(n.line) for n in graph if n.line is not None} == {
        "exp": "program.py:2", "mul": "program.py:5", "sum": "program.py:5",
    }  # fmt: skip
    assert graph["y"].line.text() == "y = x.exp()"
    assert graph["loss"].line.function == "total"
    html = graph.html()
    assert "y = x.exp()" in html
    assert "program.py:5 in total" in html
    assert "program.py:2" in graph.svg()
    assert "program.py:2" in graph.text()
    assert "program.py:2" in graph.dot()


def test_lines_of_what_freed_and_of_what_changed(program):
    found = program("""\
x = norch.ones(3, requires_grad=True)
y = x.exp()
z = x.exp()
y.sum().backward()
z.add_(1)
freed, changed = norch.graph(y), norch.graph(z)
""")
    assert str(found["freed"]["y"].freed_by) == "program.py:4"
    assert "a backward pass at program.py:4" in found["freed"].summary
    assert "a backward pass at program.py:4" in found["freed"].html()
    (exp,) = [n for n in found["changed"] if n.op == "exp"]
    assert exp.saved[0].changed_by == "add_ at program.py:5"


def test_a_function_that_is_watched_has_lines_in_any_case():
    x = norch.ones(3, requires_grad=True)
    with norch.autograd.record_lines(False):
        assert all(n.line is None for n in norch.graph(x.exp()))
        node = norch.graph(lambda: x.exp())[2]
        assert node.line.filename == __file__
        assert "x.exp()" in node.line.text()
        assert norch.graph(x.exp())[2].line is None
