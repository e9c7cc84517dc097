"""A captured step that cannot be one program: what cannot be replayed runs as it is, and the rest in parts."""

import traceback

import pytest
from capture_split_harness import bits, both, lines, weights

import norch
from norch.errors import CaptureError


def test_values_read_by_python():
    log = []

    def make(w, v):
        def step(x):
            h = (x @ w).tanh()
            h = h * 1.5
            loss = (h @ v).square().mean()
            log.append(loss.item())
            scaled = loss * 0.5
            return scaled + 1

        return step

    step = both(make)
    assert lines(step) == [(3, True), (2, True)]
    assert len(log) == 24
    assert log[:12] == log[12:]


def test_a_training_step_with_a_print(capsys):
    def make(w, v):
        optimizer_step = 0.1

        def step(x):
            w.grad = v.grad = None
            y = (x @ w).relu() @ v
            loss = (y * y).mean()
            print(f"{loss.item():.6f}")
            loss.backward()
            with norch.no_grad():
                w.sub_(w.grad * optimizer_step)
                v.sub_(v.grad * optimizer_step)
            return loss

        return step

    step = both(make)
    out = capsys.readouterr().out.split()
    assert out[:12] == out[12:]
    assert (2, True) in lines(step)


def test_branches_that_depend_on_values():
    def make(w, v):
        def step(x):
            h = x @ w
            if h.sum() > 0:
                h = h.tanh()
                kind = 1
            else:
                h, kind = h.sin(), 2
            y = h @ v
            return y * kind

        return step

    step = both(make, 16)
    assert lines(step)[0] == (1, True)


def test_shapes_that_depend_on_values():
    def make(w, v):
        def step(x):
            h = (x @ w).sigmoid()
            chosen = h[h > 0.5]
            total = chosen.sum()
            y = (h @ v).sum()
            return y + total

        return step

    both(make)


def test_loops_defaults_and_closures():
    scale = 3.0

    def make(w, v):
        def step(x, n=3, *, bias=0.25):
            y = x
            for _ in range(n):
                y = (y @ w).tanh()
            mean = float(y.mean())
            total = sum([y.sum() * k for k in (1, 2)])
            z = y * scale + bias
            z = z @ v
            return z, total, mean

        return step

    step = both(make)
    assert lines(step) == [(3, True), (3, True)]


def test_a_number_that_changes_is_left_out():
    count = [0]

    def make(w, v):
        count[0] = 0

        def step(x):
            h = (x @ w).tanh()
            count[0] += 1
            h = h * count[0]
            y = h @ v
            return y.square()

        return step

    step = both(make)
    assert (2, True) in lines(step)


def test_a_tensor_kept_in_a_list_is_kept_in_each_call():
    kept = []

    def make(w, v):
        def step(x):
            h = (x @ w).tanh()
            kept.append(h.detach())
            kept.append(x)
            loss = (h @ v).mean()
            float(loss)
            kept.append(loss)
            return loss

        return step

    both(make)
    assert len(kept) == 72
    assert bits(kept[:36]) == bits(kept[36:])


def test_methods_and_attributes():
    class Trainer:
        def __init__(self):
            self.w, self.v = weights()
            self.steps, self.last = 0, None

        def step(self, x):
            """What it does."""
            h = (x @ self.w).tanh()
            self.last = h.mean().item()
            self.steps += 1
            y = h @ self.v
            return y.sum()

    found = []
    for captured in (False, True):
        trainer = Trainer()
        step = norch.capture(trainer.step) if captured else trainer.step
        norch.manual_seed(1)
        found.append([bits([step(norch.randn(2, 6)), trainer.last, trainer.steps]) for _ in range(10)])
    assert found[0] == found[1]
    assert [n for n, _ in lines(step)] == [2, 2]


def test_exceptions_name_their_lines():
    w, _ = weights()

    def step(x, n):
        h = (x @ w).tanh()
        float(h.sum())
        y = h * 2
        if n == 7:
            raise KeyError("seven")
        return y @ norch.ones(n, 2)

    captured = norch.capture(step)
    first = step.__code__.co_firstlineno
    for _ in range(6):
        captured(norch.randn(2, 6), 6)
    assert captured.parts.described()
    for n, kind, line in ((5, norch.errors.ShapeError, 6), (7, KeyError, 5)):
        with pytest.raises(kind) as caught:
            captured(norch.randn(2, 6), n)
        frames = [f for f in traceback.extract_tb(caught.tb) if f.filename == __file__ and f.name == "step"]
        assert frames[-1].lineno == first + line


def test_names_that_may_have_no_value():
    def make(w, v):
        def step(x):
            h = x @ w
            if float(h.sum()) > 0:
                extra = h.sum()
            y = h.tanh()
            if float(y.sum()) > 0:
                y = y + extra if float(h.sum()) > 0 else y
            return y

        return step

    both(make, 16)


@pytest.mark.parametrize(
    "source",
    [
        "def step(x):\n    global seen\n    seen = float(x.sum())\n    return x * seen\n",
        "def step(x):\n    y = x * 2\n    float(y.sum())\n    z = locals()['y'] * 3\n    return z\n",
        "step = lambda x: x * float(x.sum())\n",
    ],
)
def test_functions_that_are_left_whole(source, tmp_path):
    import importlib.util

    path = tmp_path / "odd_step.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("odd_step", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    captured = norch.capture(module.step)
    for _ in range(6):
        x = norch.randn(3)
        got, expected = captured(x), module.step(x)
        assert bits(got) == bits(expected)
    assert captured.parts is None or not captured.parts.described()


def test_a_function_without_source():
    scope = {}
    exec("def step(x):\n    y = x * 2\n    return y * float(y.sum())\n", scope)
    captured = norch.capture(scope["step"])
    for _ in range(5):
        x = norch.randn(3)
        assert bits(captured(x)) == bits(scope["step"](x))
    assert captured.parts.odd


def test_fullgraph_raises_at_the_line():
    def step(x):
        y = x * 2
        return y * float(y.sum())

    captured = norch.capture(step, fullgraph=True)
    line = step.__code__.co_firstlineno + 2
    with pytest.raises(CaptureError, match=rf"test_capture_split\.py:{line}"):
        for _ in range(3):
            captured(norch.randn(3))


def test_the_report_tells_of_the_parts():
    w, v = weights()

    def step(x):
        h = (x @ w).tanh()
        print(f"{h.sum().item():.3f}", end="")
        return h @ v

    captured = norch.capture(step)
    for _ in range(6):
        captured(norch.randn(2, 6)).sum().backward()
    report = captured.report(timed=True)
    first = step.__code__.co_firstlineno
    assert [lines for lines, _ in report.apart] == [(first + 1, first + 1), (first + 3, first + 3)]
    assert f"line {first + 1}: step:" in str(report)
    assert any(p.signature.endswith(", backward") for p in report.apart[1][1].programs)
    assert "values are read" in str(report)


def test_python_that_the_step_changes_is_read_anew():
    class Trainer:
        def __init__(self):
            self.w, _ = weights()
            self.steps, self.losses = 0, []

        def step(self, x):
            h = x @ self.w
            self.steps += 1
            h = h.tanh()
            if self.steps > 8:
                h = h * 2
            loss = h.square().mean()
            self.losses.append(loss.item())
            scaled = loss * (2 if len(self.losses) > 10 else 1)
            return scaled + 1

    found = []
    for captured in (False, True):
        trainer = Trainer()
        step = norch.capture(trainer.step) if captured else trainer.step
        norch.manual_seed(1)
        found.append([bits([step(norch.randn(2, 6)), trainer.losses]) for _ in range(14)])
    assert found[0] == found[1]
    assert [n for n, _ in lines(step)] == [1, 1, 1, 1]
