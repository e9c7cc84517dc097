"""What a device reports later, in the form that norch-cuda gives it, names the lines that called the op."""

import pytest

import norch
from norch.autograd import record_lines
from norch.backend import IndexOutOfBounds
from norch.backend.registry import register, unregister
from norch.testing.null import NullBackend


class Late(NullBackend):
    device_type = "late"
    op = "gather"

    def _report(self):
        raise IndexError(f"{self.op}(): index 9 is out of bounds for a dim of size 5 (found later)")

    def copy_out(self, buffer, offset, data):
        self._report()

    def synchronize(self, index):
        self._report()


@pytest.fixture
def late():
    register(Late(), "late")
    yield norch.device("late")
    unregister("late")


@pytest.mark.parametrize(
    "wait",
    [lambda x: x.sum().item(), lambda x: x.tolist(), lambda x: x.detach().cpu(), lambda x: norch.late.synchronize()],
    ids=["item", "tolist", "cpu", "synchronize"],
)
def test_the_lines_that_called_the_op(late, wait):
    x = norch.ones(5, 3, device=late, requires_grad=True)
    index = norch.zeros(2, 3, dtype=norch.int64, device=late)
    with record_lines(True):
        picked = norch.gather(x, 0, index)  # the only one
    with pytest.raises(IndexError, match="gather.* index 9") as error:
        wait(picked)
    (note,) = error.value.__notes__
    assert note.startswith("    gather was called   test_late_errors.py:")
    assert note.endswith("picked = norch.gather(x, 0, index)  # the only one")


def test_no_code_of_other_objects_runs(late):
    asked = []

    class Lazy:
        @property
        def __class__(self):
            asked.append(self)
            return type(self)

    other = Lazy()
    with pytest.raises(IndexError):
        norch.ones(3, device=late).sum().item()
    assert not asked, other


def test_no_line_is_guessed(late, monkeypatch):
    monkeypatch.setattr(Late, "op", "scatter")
    with record_lines(True):
        x = norch.ones(5, 3, requires_grad=True)
        elsewhere = x.scatter(0, norch.zeros(2, 3, dtype=norch.int64), 1.0)
    with pytest.raises(IndexError) as error:
        norch.ones(5, device=late).tolist()
    assert not hasattr(error.value, "__notes__")
    assert elsewhere.requires_grad


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (
            IndexOutOfBounds(9, 5, "gather"),
            norch.IndexError,
            r"^gather\(\): index 9 is out of bounds for a dim of size 5",
        ),
        (IndexOutOfBounds(9, 5), norch.IndexError, "^index 9 is out of bounds for a dim of size 5"),
        (
            MemoryError("full"),
            norch.OutOfMemoryError,
            r"^LATE out of memory\. Device late:0 had no room .*: full",
        ),
        (norch.DeviceError("late:0 was lost"), norch.DeviceError, "^late:0 was lost$"),
        (RuntimeError("the chip is hot"), RuntimeError, "^the chip is hot$"),
        (ValueError("what?"), norch.BackendError, r"backend 'late' of late \?: ValueError\('what\?'\)"),
    ],
)
@pytest.mark.parametrize("wait", [lambda x: x.tolist(), lambda x: norch.late.synchronize()], ids=["read", "wait"])
def test_what_a_wait_raises_is_what_a_call_would_have(raised, kind, text, wait, late, monkeypatch):
    def report(self):
        raise raised

    monkeypatch.setattr(Late, "_report", report)
    with pytest.raises(kind, match=text) as error:
        wait(norch.ones(5, device=late))
    assert type(error.value) is kind


def test_a_number_that_no_float_holds(late):
    with pytest.raises(norch.DTypeError, match=r"mul\(\): a number is out of range for norch.float32"):
        norch.ones(3) * 10**400
