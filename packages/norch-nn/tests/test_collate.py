"""default_collate and default_convert: against values written here, and PyTorch's own where it is installed."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest

import norch
from norch.utils.data import collate, default_collate, default_convert

Point = namedtuple("Point", "x y")


def plain(value: Any) -> Any:
    """Types, dtypes and values of a nested structure, the same for norch and PyTorch."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return "tensor", str(value.dtype).split(".")[-1], tuple(value.shape), value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, {k: plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return type(value).__name__, [plain(v) for v in value]
    return value


CASES: dict[str, Any] = {
    "ints": [1, 2, 3],
    "floats": [1.5, 2.5],
    "bools": [True, False],
    "strings": ["a", "bc"],
    "bytes": [b"a", b"bc"],
    "arrays": [np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)],
    "0-d arrays": [np.array(1, np.int16), np.array(2, np.int16)],
    "empty arrays": [np.ones((0, 3)), np.ones((0, 3))],
    "NumPy scalars": [np.float32(1), np.float32(2)],
    "NumPy float64": [np.float64(1), np.float64(2)],
    "NumPy bools": [np.bool_(True), np.bool_(False)],
    "tuples": [(1, "a", np.ones(2)), (2, "b", np.zeros(2))],
    "lists": [[1, 2], [3, 4]],
    "empty lists": [[], []],
    "dicts": [{"a": 1, "b": [1.0]}, {"a": 2, "b": [2.0], "more": 3}],
    "namedtuples": [Point(1, {"z": 2}), Point(3, {"z": 4})],
    "ordered": [OrderedDict(b=1, a=2), OrderedDict(b=3, a=4)],
    "default": [defaultdict(list, a=[1]), defaultdict(list, a=[2])],
    "of dtypes": [np.ones(2, np.float32), np.ones(2, np.float64)],
}


@pytest.mark.parametrize("name", CASES)
def test_beside_pytorch(name: str) -> None:
    theirs = pytest.importorskip("torch.utils.data")
    assert plain(default_collate(CASES[name])) == plain(theirs.default_collate(CASES[name]))
    for sample in CASES[name]:
        assert plain(default_convert(sample)) == plain(theirs.default_convert(sample))


def test_nested() -> None:
    batch = default_collate(CASES["namedtuples"])
    assert plain(batch) == (
        "Point",
        [("tensor", "int64", (2,), [1, 3]), ("dict", {"z": ("tensor", "int64", (2,), [2, 4])})],
    )
    assert type(batch) is Point
    assert plain(default_collate(CASES["tuples"])) == (
        "list",
        [("tensor", "int64", (2,), [1, 2]), ("tuple", ["a", "b"]), ("tensor", "float64", (2, 2), [[1, 1], [0, 0]])],
    )
    assert default_collate([1.0]).dtype is norch.float64
    made = default_collate(CASES["default"])
    assert type(made) is defaultdict
    assert made["b"] == []


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16, norch.int8, norch.bool])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_tensors(dtype: norch.DType, shape: tuple[int, ...]) -> None:
    samples = [norch.full(shape, i, dtype=dtype) for i in range(3)]
    batch = default_collate(samples)
    assert batch.dtype is dtype
    assert batch.shape == (3, *shape)
    assert batch.device is samples[0].device
    assert batch.tolist() == [s.tolist() for s in samples]


def test_views_and_gradients() -> None:
    x = norch.arange(12.0).reshape(3, 4)
    assert default_collate([x.t()[i] for i in range(4)]).tolist() == x.t().tolist()
    w = norch.ones(2, requires_grad=True)
    default_collate([w, w * 2]).sum().backward()
    assert w.grad.tolist() == [3, 3]
    assert default_collate([norch.ones(2, dtype=norch.int32), norch.ones(2)]).dtype is norch.float32


def test_the_batch_has_memory_of_its_own() -> None:
    x = norch.zeros(3)
    batch = default_collate([x])
    batch += 1
    assert x.tolist() == [0, 0, 0]
    values = np.zeros(3, np.float32)
    batch = default_collate([values])
    batch += 1
    assert values.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("batch", "error", "match"),
    [
        (
            [np.ones((3, 4)), np.ones((3, 4)), np.ones((3, 5))],
            norch.ShapeError,
            r"\(3, 4\) in sample 0, \(3, 5\) in sample 2",
        ),
        (
            [{"a": (1, norch.ones(2))}, {"a": (1, norch.ones(3))}],
            norch.ShapeError,
            r"at \['a'\]\[1\]: \(2,\) in sample 0",
        ),
        ([[1, 2], [1]], ValueError, "differ in length: 2 in sample 0, 1 in sample 1"),
        ([{"a": 1}, {"b": 1}], ValueError, "key 'a' of sample 0 is not in sample 1"),
        ([object()], TypeError, "cannot make a batch of object"),
        ([{"a": None}], TypeError, r"NoneType at \['a'\]"),
        ([np.array(["a"])], TypeError, "arrays of <U1"),
        ([norch.ones(1), 1.0], TypeError, "a tensor in sample 0, but float"),
        ([], ValueError, "empty"),
    ],
)
def test_refusals(batch: list[Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        default_collate(batch)


def test_types_that_are_told_how_to_become_a_batch() -> None:
    class Sample:
        pass

    class Derived(Sample):
        pass

    def counted(batch: Any, *, collate_fn_map: Any = None) -> int:
        return len(batch)

    functions = {Sample: counted, norch.Tensor: collate.collate_tensor_fn}
    batch = [{"a": Derived(), "b": norch.ones(2)}] * 3
    found = collate.collate(batch, collate_fn_map=functions)
    assert found["a"] == 3
    assert found["b"].shape == (3, 2)
    with pytest.raises(TypeError, match="Derived"):
        default_collate(batch)
    collate.default_collate_fn_map[Sample] = counted
    try:
        assert default_collate(batch)["a"] == 3
    finally:
        del collate.default_collate_fn_map[Sample]
    with pytest.raises(ValueError, match="empty"):
        collate.collate([])


def test_what_is_no_batch_is_said_by_a_name_of_pytorchs():
    from norch.utils.data._utils.collate import default_collate_err_msg_format

    with pytest.raises(TypeError) as raised:
        default_collate([object()])
    assert str(raised.value).startswith(default_collate_err_msg_format.format("object"))
