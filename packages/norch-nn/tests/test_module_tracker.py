"""norch.utils.module_tracker, with a mode that is asked for ops: what PyTorch 2.13 gives the same program."""

import norch
from norch import nn
from norch.utils._python_dispatch import TorchDispatchMode
from norch.utils.module_tracker import ModuleTracker


def test_modules_are_known_in_forward_and_backward_passes():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    tracker, seen = ModuleTracker(), []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if func.overloadpacket.__name__ in ("mm", "addmm", "relu"):
                seen.append((func.overloadpacket.__name__, tracker.is_bw, *sorted(tracker.parents)))
            return out

    x = norch.rand(3, 4, requires_grad=True)
    for _ in range(2):
        seen.clear()
        with tracker, Log():
            model(x).sum().backward()
        first, inner = ("Global", "Sequential"), ("Global", "Sequential", "Sequential.1")
        assert seen == [
            ("addmm", False, *first, "Sequential.0"),
            ("relu", False, *inner, "Sequential.1.0"),
            ("addmm", False, *inner, "Sequential.1.1"),
            *[("mm", True, *inner, "Sequential.1.1")] * 2,
            *[("mm", True, *first, "Sequential.0")] * 2,
        ]
        assert tracker.parents == {"Global"}
        assert not tracker.is_bw
    seen.clear()
    with norch.no_grad(), tracker:
        model(x)
    model(x).sum().backward()
    assert seen == []
    assert tracker.parents == {"Global"}


def test_a_module_that_raises_is_left():
    class Fails(nn.Module):
        def forward(self, x):
            raise KeyError("x")

    tracker = ModuleTracker()
    with tracker:
        try:
            nn.Sequential(Fails())(norch.ones(1))
        except KeyError:
            pass
    assert tracker.parents == {"Global"}


def test_of_several_paths_the_last_is_the_name():
    shared, found = nn.Linear(2, 2), []
    shared.register_forward_pre_hook(lambda *_: found.append(set(tracker.parents)))
    model = nn.Sequential(nn.Sequential(shared), shared)
    with ModuleTracker() as tracker:
        model(norch.ones(1, 2))
    assert found == [{"Global", "Sequential", "Sequential.0", "Sequential.1"}, {"Global", "Sequential", "Sequential.1"}]
