"""norch.profiler: what is counted, and for what."""

from __future__ import annotations

import gc
import threading

import pytest
from profiler_harness import CPU, alone, make_tensors, rows, step

import norch
from norch.profiler import ProfilerAction, profile, record_function

alone = pytest.fixture(autouse=True)(alone)
tensors = pytest.fixture(make_tensors)


def test_calls_are_counted_forward_and_backward(tensors):
    with profile(activities=CPU) as prof:
        for _ in range(3):
            step(*tensors)
    found = rows(prof.key_averages())
    assert {k: found[k].count for k in ("matmul", "relu", "matmul_backward", "backward")} == {
        "matmul": 6,  # three of them for the gradient
        "relu": 3,
        "matmul_backward": 3,
        "backward": 3,
    }
    assert [e.name for e in prof.events() if e.cpu_parent is None] == ["matmul", "relu", "sum", "backward"] * 3


def test_an_event_is_within_the_call_that_made_it(tensors):
    with profile(activities=CPU) as prof:
        step(*tensors)
    for event in prof.events():
        begin, end = event.time_range
        assert 0 <= begin <= end
        outer = event.cpu_parent
        if outer is not None:
            assert outer.time_range.start <= begin <= end <= outer.time_range.end
            assert event in outer.cpu_children
        parts = sum(child.cpu_time_total for child in event.cpu_children)
        assert event.self_cpu_time_total == pytest.approx(event.cpu_time_total - parts, abs=0.01)
    names = {e.name: e for e in prof.events()}
    assert names["relu_grad"].cpu_parent.name == "relu_backward"
    assert names["relu_backward"].cpu_parent.name == "backward"


def test_self_times_add_up_to_the_time_of_what_is_outermost(tensors):
    with profile(activities=CPU) as prof:
        with record_function("all"):
            step(*tensors)
    (outermost,) = [e for e in prof.events() if e.cpu_parent is None]
    assert outermost.name == "all"
    assert prof.key_averages().self_cpu_time_total == pytest.approx(outermost.cpu_time_total, abs=0.1)


def test_forward_and_backward_are_linked(tensors):
    with profile(activities=CPU) as prof:
        step(*tensors)
    by_number = {}
    for event in prof.events():
        if event.sequence_nr >= 0:
            by_number.setdefault(event.sequence_nr, []).append(event.name)
    assert sorted(by_number.values()) == [
        ["matmul", "matmul_backward"],
        ["relu", "relu_backward"],
        ["sum", "sum_backward"],
    ]


def test_a_backward_pass_has_the_lines_of_the_forward_pass(tensors):
    x, w = tensors
    with profile(activities=CPU) as prof:
        y = (x @ w).relu()
        y.sum().backward()
    lines = {e.name: e.line for e in prof.events()}
    assert lines["relu_backward"] == lines["relu_grad"] == lines["relu"]
    assert lines["relu"].text() == "y = (x @ w).relu()"
    assert lines["sum_backward"].text() == "y.sum().backward()"
    table = prof.key_averages(group_by_line=True)
    assert {row.text for row in table} == {"y = (x @ w).relu()", "y.sum().backward()"}
    assert "y = (x @ w).relu()" in table.table()


def test_shapes_and_flops(tensors):
    with profile(activities=CPU, record_shapes=True, with_flops=True) as prof:
        step(*tensors)
    shapes = {row.input_shapes for row in prof.key_averages(group_by_input_shape=True) if row.key == "matmul"}
    assert shapes == {"[[4, 8], [8, 3]]", "[[8, 4], [4, 3]]"}
    first = next(e for e in prof.events() if e.name == "matmul")
    assert first.input_shapes == [[4, 8], [8, 3]]
    assert first.input_dtypes == ["float32", "float32"]
    assert first.flops == 2 * 4 * 8 * 3
    assert sum(e.flops for e in prof.events()) == 2 * first.flops  # one product for the gradient of w
    assert "FLOP" in prof.key_averages().table()


def test_bytes_allocated_and_saved(tensors):
    x, w = tensors
    with profile(activities=CPU, profile_memory=True) as prof:
        with record_function("part"):
            y = x @ w  # saves x, which lives on; w is a leaf
            y.exp()  # saves its result
            y.t()
            norch.zeros(5).add_(1)
    found = rows(prof.key_averages())
    assert found["matmul"].self_allocated == 4 * 3 * 4
    assert found["matmul"].saved == 4 * 8 * 4
    assert found["exp"].saved == 4 * 3 * 4
    assert found["add_"].allocated == 0
    assert found["part"].allocated == 4 * 3 * 4 * 2 + 5 * 4
    assert found["part"].cpu_memory_usage == found["part"].allocated
    table = prof.key_averages().table(sort_by="self_cpu_memory_usage")
    assert "Allocated" in table
    assert "Saved" in table


def test_a_composite_that_is_decomposed_has_its_parts():
    x = norch.randn(4, 5)
    with profile(activities=CPU, profile_memory=True) as prof:
        x.logsumexp(1)
    events = prof.events()
    outer = events[0]
    parts = [e for e in events if e.cpu_parent is not None]
    if parts:  # a backend may have it
        assert outer.allocated == 0
    assert rows(prof.key_averages())[outer.name].allocated > 0


def test_stacks(tensors):
    def inner():
        return tensors[0].exp()

    def outer():
        return inner()

    with profile(activities=CPU, with_stack=True) as prof:
        outer()
    (event,) = prof.events()
    assert [frame.rpartition(": ")[2].rpartition(".")[2] for frame in event.stack[:3]] == [
        "inner",
        "outer",
        "test_stacks",
    ]
    (row,) = prof.key_averages(group_by_stack_n=2)
    assert len(row.stack) == 2
    assert "Source Location" in prof.key_averages(group_by_stack_n=2).table()


def test_threads_are_told_apart(tensors):
    x = tensors[0]

    def work():
        with record_function("of the thread"):
            x.exp()

    with profile(activities=CPU) as prof:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        x.sin()
    by_name = {e.name: e for e in prof.events()}
    assert by_name["exp"].cpu_parent is by_name["of the thread"]
    assert by_name["exp"].thread != by_name["sin"].thread
    assert by_name["sin"].cpu_parent is None


def test_transfers_functions_and_steps_of_optimisers(tensors):
    class Double(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x, w = tensors
    with profile(activities=CPU) as prof:
        Double.apply(w).sum().backward()
        w.sum().item()
    found = rows(prof.key_averages())
    assert found["Double"].count == found["Double_backward"].count == 1
    assert found["item"].count == 1
    parts = [e for e in prof.events() if e.cpu_parent is not None and e.cpu_parent.name == "Double_backward"]
    assert [e.name for e in parts] == ["mul"]


def test_autocast_shows_an_op_once():
    a = norch.randn(4, 4)
    with norch.autocast("cpu", dtype=norch.bfloat16), profile(activities=CPU) as prof:
        out = a @ a
    assert out.dtype is norch.bfloat16
    assert rows(prof.key_averages())["matmul"].count == 1


def test_vmap_and_gradients_of_functions():
    x = norch.rand(4, 3) + 1
    with profile(activities=CPU, record_shapes=True, profile_memory=True, with_flops=True) as prof:
        norch.vmap(norch.func.grad(lambda row: row.sqrt().sum()))(x)
    found = rows(prof.key_averages())
    assert found["sqrt"].allocated == x.numel() * 4
    assert found["sqrt_backward"].count == 1


def test_ops_in_place(tensors):
    w = tensors[1]
    with profile(activities=CPU) as prof:
        y = w * 2
        y += 1
        y.relu_()
        y.sum().backward()
    names = [e.name for e in prof.events()]
    assert names.count("relu_") == 1
    assert "add_" in names[: names.index("relu_")]
    (back,) = [e for e in prof.events() if e.name == "relu_backward"]
    assert back.line.text() == "y.relu_()"


def test_a_captured_step_is_a_row_and_says_so():
    x = norch.randn(16)

    @norch.capture
    def squared(x):
        return (x * x + 1).sum()

    for _ in range(5):
        squared(x)
    with profile(activities=CPU) as prof:
        squared(x)
        squared(x)
    found = rows(prof.key_averages())
    assert found["squared"].count == found["replay"].count == 2
    assert "mul" not in found
    text = prof.key_averages().table()
    assert "squared is a captured step" in text
    assert "squared.report()" in text
    assert "kernels on cpu" in text


def test_garbage_collection_is_no_time_of_an_op():
    class Stops(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            gc.collect()
            return x

    with profile(activities=CPU) as prof:
        Stops.apply(norch.ones(1))
    (event,) = [e for e in prof.events() if e.name == "garbage collection"]
    assert event.cpu_parent.name == "Stops"


def test_what_fails_is_noted_and_passes(tensors):
    x, _ = tensors
    with profile(activities=CPU) as prof, pytest.raises(norch.ShapeError):
        x + norch.ones(3)
    failed = [e.name for e in prof.events() if e.failed]
    assert failed == ["add"]


# --- Beside PyTorch -------------------------------------------------------------------------------------------------


def test_counts_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    from torch.profiler import profile as torch_profile

    def work(lib):
        x, w = lib.ones(4, 8), lib.ones(8, 3, requires_grad=True)
        for _ in range(3):
            y = lib.relu(lib.matmul(x, w)) * 2
            lib.exp(y - 1).sum().backward()

    with torch_profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        work(torch)
    with profile(activities=CPU) as ours:
        work(norch)
    expected = {e.key: e.count for e in theirs.key_averages()}
    found = rows(ours.key_averages())
    for name, other in {
        "relu": "aten::relu",
        "exp": "aten::exp",
        "sub": "aten::sub",
        "relu_backward": "ReluBackward0",
        "exp_backward": "ExpBackward0",
        "sum_backward": "SumBackward0",
    }.items():
        assert found[name].count == expected[other], name
    attributes = {
        name for name in dir(theirs.key_averages()[0]) if name.startswith(("cpu", "self_cpu", "count", "key"))
    }
    missing = {n for n in attributes if not n.endswith("_str")} - set(dir(ours.key_averages()[0]))
    assert missing <= {"cpu_children", "cpu_parent"}


def test_what_loggers_ask_of_profiles():
    from norch.profiler.profiler import _default_schedule_fn

    assert _default_schedule_fn(3) == ProfilerAction.RECORD
    assert not norch.autograd._profiler_enabled()
    with profile(record_shapes=True) as prof:
        assert norch.autograd._profiler_enabled()
        norch.ones(2) + 1
    assert prof.events().key_averages(group_by_input_shapes=True)
    prof = profile()
    prof.start()
    norch.autograd._disable_profiler()
    assert not norch.autograd._profiler_enabled()
    with pytest.raises(RuntimeError, match="no profile runs"):
        norch.autograd._disable_profiler()
    with profile():  # which may begin again
        pass
