"""A device that does not have a dtype: what core refuses, in whose words, and what it converts first instead."""

import copy
import pickle

import numpy as np
import pytest
from broken_backends import Broken
from broken_limits import Lacks

import norch
from norch.__main__ import collect, show
from norch.backend.registry import register, unregister

REASON = "its chip has 32 bits"
ATTRS = {"gather": {"dim": 0}, "argmax": {"dims": (0,)}, "sort": {"dim": 0, "descending": False}, "copy": {}}
DOUBLE = norch.tensor(np.array([1.5, 2.5, 3.5]))


@pytest.fixture
def small():
    register(Lacks(), "norch-small", "0.3")
    yield norch.device("broken")
    unregister("broken")


ASKED = {
    "zeros": lambda d: norch.zeros(3, dtype=norch.float64, device=d),
    "nothing": lambda d: norch.zeros(0, dtype=norch.float64, device=d),
    "empty": lambda d: norch.empty(3, dtype=norch.float64, device=d),
    "strided": lambda d: norch.empty_strided((3,), (2,), dtype=norch.float64, device=d),
    "rand": lambda d: norch.rand(3, dtype=norch.float64, device=d),
    "an array": lambda d: norch.tensor(np.ones(3), device=d),
    "moved": lambda d: DOUBLE.to(d),
    "cast": lambda d: norch.ones(3, device=d).double(),
    "computed in": lambda d: norch.ones(3, device=d).lgamma(),
    "a stored one's": lambda d: norch.zeros(3, dtype=norch.uint64, device=d),
    "indices": lambda d: norch.ones(3, device=d).argmax(),
}


@pytest.mark.parametrize("how", ASKED)
def test_it_is_refused_with_device_dtype_and_reason(how, small):
    with pytest.raises(norch.MissingDTypeError, match=rf"device broken:0 has no (float|int)64: {REASON}\.") as error:
        ASKED[how](small)
    assert isinstance(error.value, norch.DTypeError)
    assert error.value.device_type == "broken"
    for same in (copy.copy(error.value), pickle.loads(pickle.dumps(error.value))):
        assert str(same) == str(error.value)
        assert (same.dtype, same.reason) == (error.value.dtype, REASON)
    assert (norch.ones(3, device=small) + 1).tolist() == [2, 2, 2]


def test_the_fallback_on_the_cpu_does_not_step_in(small):
    norch.set_cpu_fallback(True)
    try:
        with pytest.raises(norch.MissingDTypeError):
            norch.ones(3, device=small).double()
    finally:
        norch.set_cpu_fallback(False)


def test_indices_of_a_device_that_does_not_compute_in_int64():
    class Indexed(Lacks):
        def refuse(self, op, operands):
            return Broken().compile(op, operands, ATTRS[op]) if op in ATTRS else None

    register(Indexed())
    try:
        x, index = norch.tensor([1.0, 3.0, 2.0], device="broken"), norch.tensor([2, 0], device="broken")
        assert x.gather(0, index).tolist() == [2, 1]
        assert [n.tolist() for n in x.sort(0)] == [[1, 2, 3], [0, 2, 1]]
        assert (x.argmax(0).item(), index.clone().tolist()) == (1, [2, 0])
        with pytest.raises(norch.MissingDTypeError, match=rf"add\(\): device broken:0 has no int64: {REASON}"):
            index + 1
        norch.set_cpu_fallback(True)
        assert (index + 1).tolist() == [3, 1]
    finally:
        norch.set_cpu_fallback(False)
        unregister("broken")


def test_values_are_converted_where_both_dtypes_are(small):
    there = DOUBLE.to(small, norch.float32)
    assert (there.dtype, there.tolist()) == (norch.float32, [1.5, 2.5, 3.5])
    assert norch.tensor(np.ones(2), dtype=norch.float32, device=small).tolist() == [1, 1]
    back = there.to("cpu", norch.float64)
    assert (back.dtype, back.tolist()) == (norch.float64, [1.5, 2.5, 3.5])
    there.copy_(DOUBLE * 2)
    assert there.tolist() == [3, 5, 7]
    assert (there * np.float64(2) + norch.tensor(1.0, dtype=norch.float64)).tolist() == [7, 11, 15]


def test_numbers_of_kernels_may_be_of_it(small):
    w, grad, speed = (norch.ones(3, device=small) for _ in range(3))
    norch.sgd_step_([w], [grad], [speed], lr=0.5, momentum=0.0)
    assert w.tolist() == [0.5, 0.5, 0.5]
    norch.manual_seed(3)
    expected = norch.rand(4)
    norch.manual_seed(3)
    assert norch.rand(4, device=small).tolist() == expected.tolist()


def test_linspace_and_logspace_compute_elsewhere(small):
    for made in (lambda d: norch.linspace(-1, 2, 7, device=d), lambda d: norch.logspace(0, 2, 5, device=d)):
        found = made(small)
        assert (found.device, found.dtype) == (small, norch.float32)
        assert found.tolist() == made("cpu").tolist()


def test_info_and_the_module_say_so(small):
    row = next(row for row in collect()["backends"] if row["device"] == "broken")
    assert row["missing_dtypes"] == Lacks.missing_dtypes
    assert f"\n        no float64: {REASON}\n" in show(collect())
    assert not norch.broken.is_bf16_supported()
    assert norch.cpu.is_bf16_supported() if hasattr(norch, "cpu") else True


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ({"float32": "small"}, "it lacks float32, without which there is no backend"),
        ({"bool": "small", "float64": "small"}, "it lacks bool"),
        ({"float128": "small"}, "float128, which norch does not know"),
        ({"float64": None}, "not reasons by the names of dtypes"),
        (["float64"], "not reasons by the names of dtypes"),
    ],
)
def test_what_cannot_be_missing(missing, why):
    class Wrong(Lacks):
        missing_dtypes = missing

    with pytest.raises(norch.DeviceError, match=why):
        register(Wrong(), "norch-small")


def test_the_shadow_of_such_a_device_lacks_the_same(small):
    from norch.testing.shadow import shadow

    with pytest.raises(norch.MissingDTypeError):
        norch.ones(3, device=shadow("broken")).double()
    unregister("shadow")
