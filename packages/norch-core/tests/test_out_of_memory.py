"""An OutOfMemoryError says who holds the memory of the device, though nothing was switched on."""

import gc
import re
import subprocess
import sys
import textwrap

import pytest

import norch
from norch.backend import register
from norch.backend.registry import unregister
from norch.memory import holders, out_of_memory
from norch.switches import Replayed
from norch.testing.null import NullBackend

KiB = 1 << 10


class Small(NullBackend):
    """A device of which one tensor may have 1 MiB."""

    device_type = "small"

    def allocate(self, nbytes, index):
        if nbytes > 1 << 20:
            raise MemoryError(f"cannot allocate {nbytes} bytes")
        return super().allocate(nbytes, index)

    def allocating(self, kernel, nbytes, index):
        return super(NullBackend, self).allocating(kernel, nbytes, index)


@pytest.fixture
def small():
    gc.collect()
    register(Small())
    yield norch.device("small")
    unregister("small")


class Optimiser(Replayed):
    """What an optimiser is here: it counts in Python, and has a state for each parameter."""

    def __init__(self, state):
        self.state = state


def fill_up(device):
    with pytest.raises(norch.OutOfMemoryError) as caught:
        norch.empty(1 << 20, device=device)
    return str(caught.value)


def rows(text):
    """By owner, bytes in KiB and tensors."""
    found = re.findall(r"^  (\w[\w ]*?) {2,}([\d.]+) (KiB|MiB)  ([\d,]+) tensors?$", text, re.M)
    return {owner: (float(n) * (1024 if unit == "MiB" else 1), int(count)) for owner, n, unit, count in found}


def test_the_living_tensors_are_ranked_by_their_owners(small):
    w = norch.ones(64, 256, device=small, requires_grad=True)  # 64 KiB
    frozen = norch.ones(16, 256, device=small)
    x = norch.ones(32, 256, device=small)  # 32 KiB, saved by the product
    (x @ w.T).sum().backward()
    state = Optimiser({w: {"step": 3, "m": norch.zeros(64, 256, device=small), "v": [norch.zeros(64, device=small)]}})
    y = (x @ w.T).exp()  # 8 KiB each: only exp's result is saved
    assert rows(fill_up(small)) == {
        "parameters": (64, 1),
        "gradients": (64, 1),
        "optimiser state": (64.25, 2),
        "saved for backward": (40, 2),
        "other": (16, 1),
    }
    del y, state, frozen


def test_memory_that_several_hold_counts_once_for_the_first_owner(small):
    w = norch.ones(256, 4, device=small, requires_grad=True)
    kept = [w.detach(), w[3:], w.detach().reshape(-1)]
    y = w * w  # which saves w
    assert rows(fill_up(small)) == {"parameters": (4, 1), "other": (4, 1)}
    del y, kept


def test_what_only_views_hold_is_named_too(small):
    view = norch.ones(64, 256, device=small)[:]
    x = norch.ones(64, 256, device=small, requires_grad=True)
    of_result = x.exp()[1:]
    assert "  64.00 KiB  other               float32[64, 256]" in fill_up(small)
    del view, of_result


def test_the_largest_are_named_with_what_made_them_and_what_is_alike_once(small):
    w = norch.ones(128, 256, device=small, requires_grad=True)
    with norch.autograd.record_lines():
        here = f"test_out_of_memory.py:{sys._getframe().f_lineno + 1}"
        made = [w.exp() for _ in range(3)]
    small_ones = [norch.ones(3, device=small) for _ in range(50)]
    text = fill_up(small)
    largest = text.partition("The largest:\n")[2]
    assert sorted(re.findall(r"^  +128.00 KiB  (.*?)$", largest, re.M)) == [
        "parameters          float32[128, 256]", f"saved for backward  float32[128, 256]  exp, {here}  (3 of them)",
    ]  # fmt: skip
    assert "float32[3]" not in largest  # which is less than a hundredth
    del made, small_ones


def test_the_text_stays_short(small):
    w = norch.ones(100, device=small, requires_grad=True)
    kept = [norch.ones(200 + i, device=small) for i in range(40)]
    assert len(fill_up(small).splitlines()) < 25
    del w, kept


def test_tensors_of_other_devices_do_not_count(small):
    elsewhere = [norch.ones(1 << 18), norch.ones(1 << 18, device="meta")]
    x = norch.ones(256, device=small)
    assert rows(fill_up(small)) == {"other": (1, 1)}
    del x, elsewhere


def test_what_a_function_of_the_user_saved_is_saved(small):
    class Square(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x * 1)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    x = norch.ones(1024, device=small, requires_grad=True)
    y = Square.apply(x)
    assert rows(fill_up(small)) == {"parameters": (4, 1), "saved for backward": (4, 1), "other": (4, 1)}
    del y


def test_an_empty_device_has_no_list(small):
    assert fill_up(small).count("\n") == 0


def test_ops_say_it_too(small):
    x = norch.ones(512, 1, device=small)
    text = r"^SMALL out of memory\. add\(\): device small:0 has no room for (.|\n)*The largest:"
    with pytest.raises(norch.OutOfMemoryError, match=text):
        x + norch.ones(1, 1024, device=small)


def test_programs_that_look_for_pytorchs_words_find_them(small):
    """As those do that try a smaller batch: `except RuntimeError as error: if " out of memory." in error.args[0]`."""
    with pytest.raises(RuntimeError, match=r"^SMALL out of memory\. ") as caught:
        norch.ones(1 << 20, device=small)
    assert len(caught.value.args) == 1
    assert isinstance(caught.value, MemoryError)


def test_within_a_recording_the_lines_are_named(small):
    with norch.memory.record():
        x = norch.ones(1024, device=small)
        text = fill_up(small)
    assert re.search(r"float32\[1024\]  fill, test_out_of_memory.py:\d+", text)
    del x


def test_it_holds_nothing(small):
    x = norch.ones(1024, device=small)
    try:
        norch.empty(1 << 20, device=small)
    except norch.OutOfMemoryError as error:
        kept = error.args  # as a program does that logs it
    del x
    gc.collect()
    assert "4.00 KiB" in kept[0]
    assert rows(fill_up(small)) == {}


def test_no_memory_for_the_list_leaves_the_error_as_it_is(small, monkeypatch):
    x = norch.ones(1024, device=small)

    def none(*args):
        raise MemoryError

    monkeypatch.setattr(out_of_memory, "describe", none)
    assert fill_up(small).endswith("cannot allocate 4194304 bytes")
    del x


def test_a_hundred_thousand_tensors(small):
    """The text is about them all; its time is not measured here (0.2 s on two shared cores)."""
    kept = [norch.ones(16, device=small) for _ in range(100_000)]
    assert "100,000 tensors" in fill_up(small)
    del kept


def test_frozen_objects_are_found(small, monkeypatch):
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)  # the tests' own freezing is hidden: see conftest.py
    x = norch.ones(1024, device=small)
    gc.freeze()
    try:
        assert rows(fill_up(small)) == {"other": (4, 1)}
    finally:
        gc.unfreeze()
    del x


def test_import_norch_does_not_load_it():
    code = "import sys, norch; print('norch.memory' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False"


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space")
def test_memory_that_really_runs_out():
    code = """
    import resource, norch
    w = norch.ones(1 << 20, requires_grad=True)
    y = w.exp()
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
    kept = []
    try:
        while True:
            kept.append(norch.ones(10 << 20))
    except norch.OutOfMemoryError as error:
        print(error)
        del kept
        print(float((w + 1).sum()) == 2 << 20)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = rows(done.stdout)
    assert found["parameters"] == (4096, 1)
    assert found["saved for backward"] == (4096, 1)
    assert found["other"][0] >= 4096
    assert done.stdout.endswith("True\n")


def test_the_owners_are_told_as_data():
    w = norch.ones(1000, requires_grad=True)
    found, _ = holders.find(norch.device("cpu"))
    assert found[id(w.buffer)].rank == 0
    assert found[id(w.buffer)].nbytes == 4000
