"""Every layer beside PyTorch's: what it gives, its gradients, its state and what it prints.

PyTorch 2.13's answers are stored; where PyTorch is installed it is asked as well.
"""

import importlib.util
import json
import math
import sys
import warnings
from pathlib import Path

import pytest

import norch
from norch import nn


def _load(name):
    """The helper beside this file, under one name in all test processes."""
    spec = importlib.util.spec_from_file_location(f"norch_nn_{name}", Path(__file__).with_name(f"{name}.py"))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cases = _load("module_cases")
STORED = json.loads(cases.EXPECTATIONS.read_text())


def differences(found, expected, path=""):
    if isinstance(expected, dict):
        if list(found) != list(expected):
            return [f"{path}: {list(found)}, not {list(expected)}"]
        return [d for k in expected for d in differences(found[k], expected[k], f"{path}.{k}")]
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        return [d for i, (a, b) in enumerate(zip(found, expected)) for d in differences(a, b, f"{path}[{i}]")]
    if isinstance(expected, float):
        return [] if math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-8) else [f"{path}: {found}, not {expected}"]
    return [] if found == expected else [f"{path}: {found!r}, not {expected!r}"]


@pytest.mark.parametrize("case", cases.CASES, ids=lambda c: c.id)
def test_as_stored(case):
    assert differences(cases.run(norch, case), STORED[case.id]) == []


@pytest.mark.parametrize("case", cases.CASES, ids=lambda c: c.id)
def test_as_pytorch(case):
    torch = pytest.importorskip("torch", minversion="2.13")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = cases.run(torch, case)
    assert differences(cases.run(norch, case), expected) == []


@pytest.mark.parametrize("case", cases.CASES, ids=lambda c: c.id)
def test_on_another_device_than_the_default(case):
    from norch.testing.strict import strict_device

    assert differences(cases.run(norch, case, strict_device()), STORED[case.id]) == []


def test_every_case_is_stored_and_no_other():
    assert [c.id for c in cases.CASES] == list(STORED)


def test_every_layer_has_a_case():
    layers = {
        name
        for name in vars(nn)
        if isinstance(getattr(nn, name), type)
        and getattr(nn, name).__module__.rsplit(".", 1)[-1]
        in "activation convolution distance dropout embedding linear normalization padding pixels pooling".split()
    }
    missing = layers - {c.name for c in cases.CASES}
    # MaxUnpool takes indices; distances of pairs are tried with the losses.
    elsewhere = {"PairwiseDistance", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"}
    # Their places are drawn, and its gradient is not PyTorch's: see test_fractional_pooling.
    assert missing == elsewhere | {"FractionalMaxPool2d", "FractionalMaxPool3d", "CrossMapLRN2d"}


def test_signatures_are_pytorchs():
    torch = pytest.importorskip("torch", minversion="2.13")
    import inspect

    for name in {c.name for c in cases.CASES} - {"Hardtanh"}:  # whose min_value and max_value are deprecated
        own, other = (inspect.signature(getattr(lib.nn, name).__init__).parameters for lib in (norch, torch))
        both = [[(p.name, p.default) for p in s.values() if p.kind is not p.VAR_KEYWORD] for s in (own, other)]
        if both[1] != [("self", inspect.Parameter.empty), ("args", inspect.Parameter.empty)]:
            assert both[0] == both[1], name
