"""What a device reports later, in the form that norch-cuda gives it, names the lines that called the op."""

import pytest

import norch
from norch.autograd import record_lines
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


def test_no_line_is_guessed(late, monkeypatch):
    monkeypatch.setattr(Late, "op", "scatter")
    with record_lines(True):
        x = norch.ones(5, 3, requires_grad=True)
        elsewhere = x.scatter(0, norch.zeros(2, 3, dtype=norch.int64), 1.0)
    with pytest.raises(IndexError) as error:
        norch.ones(5, device=late).tolist()
    assert not hasattr(error.value, "__notes__")
    assert elsewhere.requires_grad
