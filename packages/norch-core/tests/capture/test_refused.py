"""What cannot be replayed is left as it is, and the report says what it was, and where."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys

import numpy as np
import pytest
from capture_harness import image, numbers

import norch


def batch(device, i, *shape):
    return norch.tensor(numbers(i, *shape), device=device)


KEPT = []
COUNT = [0]


class Kept:
    last = None


def item(x):
    return x * x.sum().item()


def printed(x):
    str(x)
    return x * 2


def decided(x):
    return x * 2 if x.sum() > 0 else x * 3


def chosen(x):
    return x[x > 0] * 2


def listed(x):
    return norch.tensor(x.tolist(), device=x.device) * 2


def written_by_address(x):
    """As a kernel of another library does."""
    y = x * 2
    at = y.data_ptr()
    if y.device.type == "cpu":
        ctypes.c_float.from_address(at).value += 1
    return y * 3


def of_python_data(x):
    COUNT[0] += 1
    return x * norch.tensor([COUNT[0], 2, 3], device=x.device)


def argument_in_place(x):
    return x.mul_(2) + 1


def part_of_argument_in_place(x):
    x[1:].zero_()
    return x * 2


def in_a_list(x):
    y = x * 2
    KEPT.append(y)
    return y + 1


def a_view_in_a_list(x):
    KEPT.append(x[1:])
    return x + 1


def argument_in_an_attribute(x):
    Kept.last = x
    return x + 1


def in_an_attribute(x):
    Kept.last = x * 2
    return Kept.last + 1


def counted(x):
    COUNT[0] += 1
    return x * COUNT[0]


def drawn_in_python(x):
    return x * random.random()


def drawn_by_numpy(x):
    return x * float(np.random.rand())


def an_object(x):
    return [x * 2, "text", bytearray(2)]


def mode(x):
    norch.set_grad_enabled(not norch.is_grad_enabled())
    return x * 2


def work_of_a_library(x):
    for tell in norch.backend.unseen:
        tell("a_graph.replay()")
    return x * 2


REFUSED = {
    item: "values are read by Python",
    printed: "values are read by Python",
    decided: "values are read by Python",
    chosen: "values are read by Python",
    listed: "values are read by Python",
    written_by_address: "address is read by Python",
    of_python_data: "Python data that change",
    argument_in_place: "an argument is changed in place",
    part_of_argument_in_place: "an argument is changed in place",
    in_a_list: "kept after it",
    a_view_in_a_list: "an argument is kept",
    argument_in_an_attribute: "an argument is kept",
    in_an_attribute: "kept after it",
    counted: "a number that mul gets was",
    drawn_in_python: "Python's or NumPy's random numbers",
    drawn_by_numpy: "Python's or NumPy's random numbers",
    an_object: "neither a tensor nor a number",
    mode: "another mode",
    work_of_a_library: "a_graph.replay() gives the device work that no recording sees",
}


@pytest.mark.parametrize("step", REFUSED, ids=lambda step: step.__name__)
def test_refused_and_right(step, device):
    run, outcomes = norch.capture(step), []
    for function in (step, run):
        norch.set_grad_enabled(True)
        random.seed(0), np.random.seed(0)
        KEPT.clear()
        COUNT[0] = 0
        seen = []
        for i in range(8):
            x = batch(device, i, 3)
            try:
                seen.append(image((function(x), x, Kept.last, list(KEPT))))
            finally:
                kept = norch.is_grad_enabled()
            seen.append(kept)
        outcomes.append(seen)
    norch.set_grad_enabled(True)
    assert outcomes[0] == outcomes[1]
    report = run.report()
    assert report.replayed == 0
    assert report.refused, str(report)
    for why in report.refused.values():
        assert REFUSED[step] in why
        if "read by Python" in why or "a number" in why:
            assert "test_refused.py:" in why


@pytest.mark.parametrize("step", [item, in_a_list, decided], ids=lambda step: step.__name__)
def test_fullgraph_raises_with_the_line(step, device):
    run = norch.capture(step, fullgraph=True)
    x = batch(device, 1, 3)
    run(x)
    for _ in range(3):
        with pytest.raises(norch.CaptureError, match=REFUSED[step] + r".*\(test_refused.py:\d+\)"):
            run(x)


def test_fullgraph_raises_for_numbers_that_change(device):
    run = norch.capture(counted, fullgraph=True)
    x = batch(device, 1, 3)
    with pytest.raises(norch.CaptureError, match="a number that mul gets was"):
        for _ in range(8):
            run(x)


def test_what_is_no_step():
    with pytest.raises(TypeError, match="expected a function, got int"):
        norch.capture(3)

    async def waits(x):
        return x

    def yields(x):
        yield x

    for function in (waits, yields):
        with pytest.raises(TypeError, match="runs when capture\\(\\) is over"):
            norch.capture(function)


def test_the_numbers_of_steps_that_read_only_at_first(device):
    """Printing the first losses does not cost the replays of the others."""
    seen = []

    def step(x):
        y = x * 2
        if len(seen) < 4:
            seen.append(y.sum().item())
        return y

    run = norch.capture(step)
    for i in range(40):
        x = batch(device, i, 3)
        assert run(x).tolist() == (x * 2).tolist()
    assert run.report().replayed > 15


FIRST_DRAW = """
import sys
import numpy as np
import norch

x, steps = norch.ones(3), [0]
run = norch.capture(lambda x: x * 2)
for _ in range(4):
    run(x)
assert run.report().replayed and "numpy.random" not in sys.modules

def later(x):
    steps[0] += 1
    return x * (2.0 if steps[0] < 3 else float(np.random.rand()))

drawn = norch.capture(later)
found = [drawn(x)[0].item() for _ in range(8)]
assert found[:2] == [2.0, 2.0] and len(set(found[2:])) == 6, found
"""


def test_numpys_random_numbers_are_loaded_by_who_draws_them():
    done = subprocess.run([sys.executable, "-c", FIRST_DRAW], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
