"""A captured step in parts: statements within a `with` and within loops, and variables that parts hand on."""

from pathlib import Path

from capture_split_harness import both

import norch


def parts_replayed(step):
    """By part its lines as text, with what is replayed of them."""
    source = Path(step.source.__code__.co_filename).read_text().splitlines()
    return {
        "; ".join(line.strip() for line in source[first - 1 : last])
        for (first, last), captured in step.parts.described()
        if captured.report().replayed
    }


def test_statements_within_a_with():
    def make(w, v):
        def step(x):
            with norch.no_grad():
                h = (x @ w).tanh()
                h = h * 2
                if bool((h.sum() > 0).item()):
                    h = h.neg()
                h = h @ v
                h = h + 1
                return h.softmax(-1)

        return step

    step = both(make, 14)
    assert parts_replayed(step) == {"h = (x @ w).tanh(); h = h * 2", "h = h @ v; h = h + 1; return h.softmax(-1)"}


def test_statements_within_loops():
    def make(w, v):
        def step(x):
            total = 0.0
            for scale in (1.0, 2.0, 3.0):
                with norch.enable_grad():
                    h = (x @ w * scale).relu()
                    loss = (h @ v).square().mean()
                total += loss.item()
                if total > 1e9:
                    break
                loss.backward()
            with norch.no_grad():
                for p in (w, v):
                    p.sub_(p.grad * 0.01)
                    p.grad = None
            return total, loss

        return step

    step = both(make, 14)
    assert any("loss = (h @ v)" in part for part in parts_replayed(step))


def test_variables_of_a_loop_that_a_part_makes():
    seen = []

    def make(w, v):
        def step(x):
            for k in range(2):
                h = (x @ w).relu() * (k + 1)
                loss = (h @ v).square().mean()
                loss.backward()
            seen.append(loss.item())
            return loss * k

        return step

    step = both(make, 10)
    assert any("loss.backward()" in part for part in parts_replayed(step))


def test_a_variable_without_a_value_stays_so():
    def make(w, v):
        flags = {"on": True}

        def step(x):
            if flags["on"]:
                extra = (x @ w).sum()
            h = (x @ w).relu()
            norch.manual_seed(int(h.sum().item() * 0))
            try:
                return extra + h.sum()
            except UnboundLocalError:
                return h.sum()

        step.flags = flags
        return step

    for on in (True, False):

        def made(w, v, on=on):
            step = make(w, v)
            step.flags["on"] = on
            return step

        both(made, 8)


def test_a_loop_that_carries_values_over():
    def make(w, v):
        def step(x):
            state = x
            for _ in range(3):
                before = state
                state = (state @ w).tanh()
                state = state + before * 0.5
                float(state.sum())
            return state @ v

        return step

    step = both(make, 10)
    assert any("state = state + before" in part for part in parts_replayed(step))
