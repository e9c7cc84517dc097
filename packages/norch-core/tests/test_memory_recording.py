"""norch.memory.record and snapshot: who held what, over time and now."""

import gc
import json
import re
from pathlib import Path

import pytest

import norch
from norch.device import CPU
from norch.dispatch.op import all_ops
from norch.memory import OWNERS, Recording, Snapshot, record, snapshot


@pytest.fixture(autouse=True)
def nothing_else():
    gc.collect()


def line_of(text):
    """The line of this file that holds `text`, as a line is written."""
    lines = Path(__file__).read_text().splitlines()
    return f"test_memory_recording.py:{next(i for i, line in enumerate(lines, 1) if text in line)}"


def of_size(recording, nbytes):
    return [b for b in recording.blocks if b.nbytes == nbytes and b.device == "cpu"]


def test_each_block_has_its_time_op_line_and_shape():
    before = norch.ones(1001)
    with record() as recording:
        x = norch.ones(1003) * 2  # made here
        del before
        y = x.exp()
    (first,) = of_size(recording, 4004)
    assert first.made == 0
    assert 0 < first.freed < recording.seconds
    one, two, three = of_size(recording, 4012)
    assert (one.op, two.op, three.op) == ("fill", "mul", "exp")
    assert one.line == two.line == line_of("# made here")
    assert (one.shape, one.dtype) == ((1003,), "float32")
    assert one.made < two.made < one.freed < three.made
    assert two.freed is three.freed is None  # x and y are there still
    del x, y


def test_the_owners_of_a_training_step():
    w = norch.ones(50, 70, requires_grad=True)
    x = norch.ones(20, 70)
    with record() as recording:
        y = (x @ w.T).exp()  # 4000 bytes each: the result of exp is saved
        y.sum().backward()
        w.grad = None
    assert [b.owner for b in of_size(recording, 14000)][:1] == ["parameters"]
    assert "gradients" in [b.owner for b in of_size(recording, 14000)]  # though it is gone in the end
    assert [(b.op, b.owner) for b in of_size(recording, 4000)][:2] == [
        ("matmul", "other"),
        ("exp", "saved for backward"),
    ]
    assert [b.owner for b in of_size(recording, 5600)] == ["saved for backward"]
    assert any(b.op.endswith("in backward") and b.line == line_of("y.sum().backward()") for b in recording.blocks)


def test_the_sums_are_those_of_the_blocks():
    with record() as recording:
        kept = []
        for i in range(1, 6):
            kept.append(norch.ones(1000 * i))
            norch.ones(7000)
    base = sum(b.nbytes for b in recording.blocks if b.made == 0 and b.device == "cpu")
    peak, when = recording.peak("cpu")
    assert peak - base == 4 * (1000 + 2000 + 3000 + 4000 + 5000 + 7000)
    assert sum(b.nbytes for b in recording.at(when, "cpu")) == peak
    time, held = recording.timeline("cpu")[-1]
    assert sum(held) - base == 4 * 15000
    assert time <= recording.seconds
    del kept


def test_a_step_is_recorded_and_a_running_recording_is_shown():
    recording = snapshot(lambda: norch.ones(1009).exp())
    assert isinstance(recording, Recording)
    assert {b.op for b in of_size(recording, 4036)} == {"fill", "exp"}
    with record() as running:
        assert snapshot() is running
        assert running.ended is None
        assert str(running)
    with record() as outer, pytest.raises(RuntimeError, match="one recording at a time"), record():
        pass
    assert outer.ended is not None


def test_while_nothing_is_recorded_nothing_is_in_the_way():
    x = norch.ones(1013)
    x + x
    before = dict(vars(CPU.backend))
    with record():
        assert "allocate" in vars(CPU.backend)
        x + x
    assert vars(CPU.backend) == before
    assert not any(op.plans for op in all_ops())  # made again when they are next asked for
    with pytest.raises(ZeroDivisionError), record():
        1 / 0
    assert vars(CPU.backend) == before


def test_results_are_the_same_bits_within():
    def compute():
        norch.manual_seed(3)
        w = norch.randn(30, 40, requires_grad=True)
        (norch.randn(8, 40) @ w.T).softmax(-1).square().sum().backward()
        return w.grad.tolist()

    expected = compute()
    with record():
        assert compute() == expected


def test_a_snapshot_of_now():
    w = norch.ones(30000, requires_grad=True)
    w.exp().sum().backward()
    y = w.exp()
    found = snapshot(device="cpu")
    assert isinstance(found, Snapshot)
    assert list(found.owners) == list(OWNERS)
    assert found.nbytes == sum(h.nbytes for h in found.holdings)
    mine = [(h.owner, h.op) for h in found.holdings if h.shape == (30000,)]
    assert sorted(mine) == [("gradients", ""), ("parameters", ""), ("saved for backward", "exp")]
    assert [h.nbytes for h in found.holdings] == sorted([h.nbytes for h in found.holdings], reverse=True)
    assert "saved for backward" in str(found)
    del y


def test_files(tmp_path):
    with record() as recording:
        w = norch.ones(1 << 16, requires_grad=True)
        w.exp().sum().backward()
    for shown in (recording, snapshot()):
        for kind in ("svg", "html", "json", "txt"):
            shown.save(tmp_path / f"memory.{kind}")
        assert (tmp_path / "memory.svg").read_text().startswith("<svg")
        assert "http" not in re.sub(r"http://www.w3.org/2000/svg", "", (tmp_path / "memory.html").read_text())
        assert json.loads((tmp_path / "memory.json").read_text()) == json.loads(json.dumps(shown.to_dict()))
        assert (tmp_path / "memory.txt").read_text() == f"{shown}\n"
        assert shown._repr_html_().startswith("<svg")
    with pytest.raises(ValueError, match=r"\.svg, \.html, \.json or \.txt, got .*memory\.png"):
        recording.save(tmp_path / "memory.png")


def test_a_picture_by_events_is_the_same_each_time():
    def step():
        w = norch.ones(300, 40, requires_grad=True)
        w.exp().sum().backward()

    step()
    one, two = (snapshot(step).svg(by="events") for _ in range(2))
    assert one == two
    with pytest.raises(ValueError, match="by must be 'time' or 'events', got 'clock'"):
        snapshot(step).svg(by="clock")


def test_what_a_page_shows_is_escaped(tmp_path):
    with record() as recording:
        x = norch.ones(1 << 12)
    recording.blocks[-1].line = "</script><b>.py:1"
    page = recording.html()
    assert "</script><b>" not in page
    assert "\\u003c/script>" in page
    del x


def test_a_recording_of_nothing():
    recording = Recording()
    assert str(recording) == "nothing was allocated"
    assert recording.svg()
    assert recording.html()
