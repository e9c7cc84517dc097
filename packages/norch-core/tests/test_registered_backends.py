"""Backends that are registered in process, and what they add to the module of their device."""

import types

import pytest

import norch
from norch.backend import Backend, Buffer, registry
from norch.device_module import DeviceModule
from norch.testing.null import NullBackend, ensure_registered


class Minimal(Backend):
    device_type = "minimal"

    def device_count(self):
        return 1

    def allocate(self, nbytes, index):
        return Buffer(nbytes)

    def copy_in(self, buffer, offset, data): ...
    def copy_out(self, buffer, offset, data): ...
    def copy(self, out, out_offset, source, source_offset, nbytes): ...
    def compile(self, op, operands, attrs):
        if op == "exp":
            raise KeyError("inside compile")
        if op == "neg":

            def kernel(*args):
                raise KeyError("inside the kernel")

            return kernel
        return None if op == "log" else lambda *args: None


@pytest.fixture
def minimal():
    registry.register(Minimal(), "norch-minimal", "3.1")
    yield norch.device("minimal")
    registry.unregister("minimal")


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("exp", ["norch-minimal 3.1", "exp", "inside compile"]),
        ("neg", ["norch-minimal 3.1", "neg", "inside the kernel"]),
        ("log", ["norch-minimal 3.1", "no kernel log", "set_cpu_fallback"]),
    ],
)
def test_a_backend_that_breaks_its_contract_is_named(minimal, op, words):
    x = norch.empty(2, device=minimal)
    with pytest.raises(norch.BackendError) as caught:
        getattr(x, op)()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_registered_backends_win_by_priority_then_recency(minimal):
    first, second, low = registry.find("minimal"), Minimal(), Minimal()
    low.priority = -1
    registry.register(low)
    assert registry.find("minimal") is first
    registry.register(second)
    assert norch.device("minimal").backend is second
    assert registry.provider_of(second).distribution == "in process"
    registry.unregister("minimal")
    with pytest.raises(norch.DeviceError, match="no installed package"):
        norch.device("minimal").backend


def test_register_refuses_what_is_no_backend():
    with pytest.raises(norch.DeviceError, match=r"register\(\): expected a norch.backend.Backend, got object"):
        registry.register(object())


def test_a_device_module_forwards_what_its_backend_adds(minimal):
    registry.find("minimal").module = types.SimpleNamespace(memory_allocated=lambda: 7)
    module = DeviceModule("minimal")
    assert module.memory_allocated() == 7
    assert module.current_device() == 0
    assert {"memory_allocated", "is_available"} <= set(dir(module))
    with pytest.raises(AttributeError, match=r"norch.minimal has no attribute 'warp_size'; .*memory_allocated"):
        module.warp_size


def test_a_device_module_synchronizes_its_own_devices_only(minimal):
    waited = []
    registry.find("minimal").synchronize = waited.append
    module = DeviceModule("minimal")
    for device in (None, 0, "minimal", "minimal:0", minimal):
        module.synchronize(device)
    assert waited == [0] * 5
    for wrong in ("cpu", 1, -1):
        with pytest.raises(norch.DeviceError):
            module.synchronize(wrong)


def test_what_a_backend_adds_to_its_module_goes_with_it():
    for name in ("first", "second"):
        backend = Minimal()
        backend.module = types.SimpleNamespace(who=name)
        registry.register(backend)
        module = DeviceModule("minimal")
        assert (norch.minimal.who, norch.minimal.who, module.who) == (name, name, name)
        assert norch.minimal.is_available()
    registry.unregister("minimal")
    with pytest.raises(AttributeError, match="minimal"):
        norch.minimal
    assert norch.cpu is norch.cpu


def test_a_subclass_of_a_registered_backend_is_a_device_of_its_own(monkeypatch):
    monkeypatch.setattr(registry, "_registered", [*registry._registered])

    class Parent(NullBackend):
        device_type = "parent"

    class Child(Parent):
        device_type = "child"

    for backend in (Child, Parent):
        assert type(ensure_registered(backend).backend) is backend


def test_what_programs_import_of_a_device_that_is_not_there() -> None:
    calls: list[int] = []
    norch.cpu._lazy_call(lambda: calls.append(1))
    assert calls == [1]
    if not norch.cuda.is_available():
        norch.cuda._lazy_call(lambda: calls.append(2))
        assert calls == [1]
        with pytest.raises(NotImplementedError, match=r"norch has no cuda\.device"):
            norch.cuda.device(0)
