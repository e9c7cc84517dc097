"""What profiles write: traces in the trace-event format, stacks, and NVTX ranges."""

from __future__ import annotations

import ctypes
import gzip
import json
import os
from types import SimpleNamespace

import pytest
from profiler_harness import CPU, alone

import norch
from norch import observing
from norch.autograd.profiler import emit_nvtx
from norch.profiler import nvtx, profile, record_function

alone = pytest.fixture(autouse=True)(alone)


def train(steps=2):
    w = norch.randn(8, 3, requires_grad=True)
    for _ in range(steps):
        with record_function("forward"):
            loss = (norch.ones(4, 8) @ w).relu().sum()
        loss.backward()


@pytest.fixture
def profiled():
    train()
    with profile(activities=CPU, record_shapes=True, profile_memory=True, with_stack=True) as prof:
        train()
    return prof


# --- Traces ---------------------------------------------------------------------------------------------------------

NUMBER, TEXT = (int, float), str
FIELDS = {
    "X": {"name": TEXT, "cat": TEXT, "ts": NUMBER, "dur": NUMBER, "pid": (int, str), "tid": (int, str), "args": dict},
    "M": {"name": TEXT, "pid": int, "tid": int, "ts": NUMBER, "args": dict},
    "s": {"name": TEXT, "cat": TEXT, "ts": NUMBER, "pid": int, "tid": int, "id": int},
    "f": {"name": TEXT, "cat": TEXT, "ts": NUMBER, "pid": int, "tid": int, "id": int, "bp": TEXT},
}
"""By phase, the fields that the trace-event format asks for."""


def check(trace):
    """The rules of the format, as Perfetto has them."""
    assert isinstance(trace["traceEvents"], list)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert trace["schemaVersion"] == 1
    spans, flows = {}, {}
    for event in trace["traceEvents"]:
        fields = FIELDS[event["ph"]]
        assert fields.keys() == event.keys() - {"ph"}
        for field, kind in fields.items():
            assert isinstance(event[field], kind), (field, event)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            spans.setdefault((event["pid"], event["tid"]), []).append(event)
        elif event["ph"] in "sf":
            flows.setdefault((event["cat"], event["id"]), []).append(event)
    for row in spans.values():  # slices of a row nest
        row.sort(key=lambda e: (e["ts"], -e["dur"]))
        ends = []
        for event in row:
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            end = event["ts"] + event["dur"]
            assert not ends or end <= ends[-1] + 1e-3, event
            ends.append(end)
    for (category, _), pair in flows.items():
        start, finish = pair
        assert (start["ph"], finish["ph"], finish["bp"]) == ("s", "f", "e")
        assert start["ts"] <= finish["ts"] or category == "ac2g"
        for end in pair:  # each end lies in a slice
            row = spans[end["pid"], end["tid"]]
            assert any(e["ts"] <= end["ts"] <= e["ts"] + e["dur"] for e in row)
    return spans, flows


def test_a_trace_keeps_the_rules_of_the_format(profiled, tmp_path):
    path = tmp_path / "trace.json"
    profiled.add_metadata("note", "so")
    profiled.export_chrome_trace(path)
    trace = json.loads(path.read_text())
    spans, flows = check(trace)
    assert trace["note"] == "so"
    assert {trace[flag] for flag in ("record_shapes", "profile_memory", "with_stack")} == {1}
    (row,) = [row for (pid, _), row in spans.items() if pid == os.getpid()]
    assert [e["name"] for e in row if e["cat"] == "user_annotation"] == ["forward"] * 2
    product = next(e for e in row if e["name"] == "matmul")
    assert product["args"]["Input Dims"] == [[4, 8], [8, 3]]
    assert product["args"]["Input type"] == ["float32", "float32"]
    assert product["args"]["Input Strides"] == [[8, 1], [3, 1]]
    assert product["args"]["Bytes allocated"] == 48
    assert "norch.ones(4, 8) @ w" in product["args"]["Source"]
    assert len(flows) == 6  # matmul, relu and sum of two steps


def test_compressed_traces_and_those_of_event_lists(profiled, tmp_path):
    profiled.export_chrome_trace(tmp_path / "trace.json.gz")
    check(json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes())))
    profiled.events().export_chrome_trace(str(tmp_path / "list.json"))
    check(json.loads((tmp_path / "list.json").read_text()))


def test_fields_are_those_that_pytorch_writes(profiled, tmp_path):
    torch = pytest.importorskip("torch")
    w = torch.randn(8, 3, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as theirs:
        (torch.ones(4, 8) @ w).relu().sum().backward()
    theirs.export_chrome_trace(str(tmp_path / "theirs.json"))
    profiled.export_chrome_trace(tmp_path / "ours.json")
    expected, found = (json.loads((tmp_path / name).read_text()) for name in ("theirs.json", "ours.json"))
    assert {"schemaVersion", "deviceProperties", "traceEvents", "displayTimeUnit", "baseTimeNanoseconds"} <= (
        expected.keys() & found.keys()
    )

    def one(trace, name):
        return next(e for e in trace["traceEvents"] if e["ph"] == "X" and e["name"] == name)

    theirs_op, ours_op = one(expected, "aten::relu"), one(found, "relu")
    assert theirs_op.keys() == ours_op.keys()
    assert theirs_op["cat"] == ours_op["cat"] == "cpu_op"
    wanted = {"External id", "Sequence number", "Input Dims", "Input type", "Input Strides", "Ev Idx"}
    assert wanted <= theirs_op["args"].keys() & ours_op["args"].keys()
    flow = next(e for e in expected["traceEvents"] if e["ph"] == "f")
    assert flow.keys() == next(e for e in found["traceEvents"] if e["ph"] == "f").keys()


def test_stacks_for_flame_graphs(profiled, tmp_path):
    path = tmp_path / "stacks.txt"
    profiled.export_stacks(path)
    rows = [line.rsplit(" ", 1) for line in path.read_text().splitlines()]
    assert all(int(value) > 0 for _, value in rows)
    assert any(stack.startswith("forward;") and "train;matmul" in stack for stack, _ in rows)
    total = sum(int(value) for _, value in rows)
    assert total == pytest.approx(profiled.events().self_cpu_time_total, abs=len(rows))
    with pytest.raises(ValueError, match="metric should be one of"):
        profiled.export_stacks(path, "colour")


# --- NVTX -----------------------------------------------------------------------------------------------------------


class Library:
    """A made-up NVTX."""

    def __init__(self):
        self.calls, self.depth = [], 0

        def function(name):
            def call(*args):
                self.calls.append((name, *args))
                if name == "RangePushA":
                    self.depth += 1
                    return self.depth - 1
                if name == "RangePop":
                    self.depth -= 1
                    return self.depth
                return 7

            return call

        for name in ("RangePushA", "RangePop", "MarkA", "RangeStartA", "RangeEnd"):
            setattr(self, f"nvtx{name}", function(name))


@pytest.fixture
def library(monkeypatch):
    made = Library()
    opened = []

    def open_library(place):
        opened.append(place)
        if len(opened) < 2:
            raise OSError(place)
        return made

    monkeypatch.setattr(nvtx, "_library", None)
    monkeypatch.setattr(nvtx, "ctypes", SimpleNamespace(**vars(ctypes) | {"CDLL": open_library}))
    return made


def test_ranges_and_marks(library):
    assert nvtx.range_push("a") == 0
    assert norch.cuda.nvtx.range_push("b") == 1
    assert nvtx.range_pop() == 1
    assert nvtx.range_pop() == 0
    nvtx.mark("c")
    handle = nvtx.range_start("d")
    nvtx.range_end(handle)
    with nvtx.range("step {}", 3):
        pass

    @nvtx.range("decorated")
    def work():
        return 5

    assert work() == 5
    assert library.calls == [
        ("RangePushA", b"a"), ("RangePushA", b"b"), ("RangePop",), ("RangePop",), ("MarkA", b"c"),
        ("RangeStartA", b"d"), ("RangeEnd", 7), ("RangePushA", b"step 3"), ("RangePop",),
        ("RangePushA", b"decorated"), ("RangePop",),
    ]  # fmt: skip
    assert nvtx.is_available()


def test_every_op_is_a_range(library):
    x = norch.ones(2, requires_grad=True)
    with emit_nvtx(record_shapes=True), record_function("part"):
        y = x * 2
        y.sum().backward()
    texts = [call[1].decode() for call in library.calls if call[0] == "RangePushA"]
    assert texts[0].startswith("part")
    assert "mul, sizes = [[2], []]" in texts
    assert any(text.startswith(f"mul_backward, seq = {y.grad_fn.sequence_number}") for text in texts)
    assert library.depth == 0
    emitting = emit_nvtx()
    with emitting, pytest.raises(RuntimeError, match="not reentrant"), emitting:
        pass
    with emit_nvtx(enabled=False):
        assert not observing._observers


def test_without_the_library_it_is_said(monkeypatch):
    monkeypatch.setattr(nvtx, "_library", None)
    monkeypatch.setattr(nvtx, "_places", lambda: iter(()))
    assert not nvtx.is_available()
    with pytest.raises(RuntimeError, match="NVTX functions not installed"):
        nvtx.range_push("a")
    with pytest.raises(RuntimeError, match="NVTX functions not installed"), emit_nvtx():
        pass
    assert not observing._observers


def test_the_module_is_where_pytorch_has_it():
    import norch.cuda.nvtx as by_path
    from norch.cuda import nvtx as by_name

    assert by_path is by_name is nvtx


def test_where_profilers_of_nvidia_record(monkeypatch):
    import norch.cuda.profiler as profiler

    find = profiler.registry.find
    told = []
    names = ("cudaProfilerStart", "cudaProfilerStop")
    runtime = SimpleNamespace(**{name: lambda name=name: told.append(name) for name in names})
    backend = SimpleNamespace(module=SimpleNamespace(cudart=lambda: runtime))
    monkeypatch.setattr(profiler.registry, "find", lambda name: backend if name == "cuda" else find(name))
    with pytest.raises(KeyError), norch.cuda.profiler.profile():
        raise KeyError
    profiler.start()
    profiler.stop()
    assert told == [*names, *names]


@pytest.mark.skipif(norch.cuda.is_available(), reason="of a machine without a GPU")
def test_where_there_is_no_gpu_to_profile():
    with pytest.raises(norch.DeviceError, match="norch-cuda"):
        norch.cuda.profiler.start()
