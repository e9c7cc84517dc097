"""norch.explain: what it says of a tensor's memory is what NumPy says of an array that was made in the same way."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import norch
from norch.inspection.storage import MANY, index_at

SVG = "{http://www.w3.org/2000/svg}"
VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda a: a,
    "transposed": lambda a: a.swapaxes(0, 1),
    "row": lambda a: a[1],
    "column": lambda a: a[:, 2],
    "block": lambda a: a[1:, 1:3],
    "steps": lambda a: a[::2, ::3],
    "reshaped": lambda a: a.reshape(2, 2, 5),
    "turned": lambda a: a.reshape(2, 2, 5).swapaxes(1, 2),
    "one": lambda a: a[3:, :1],
    "none": lambda a: a[2:2],
}


def pair(view: Callable[[Any], Any]) -> tuple[Any, norch.Tensor, np.ndarray]:
    """A storage, and a view of it: as a tensor and as an array."""
    storage = np.arange(20.0, dtype=np.float32).reshape(4, 5)
    return storage, view(norch.tensor(storage)), view(storage)


@pytest.mark.parametrize("name", VIEWS)
def test_layouts_are_numpys(name: str) -> None:
    storage, tensor, array = pair(VIEWS[name])
    found = norch.explain(tensor)
    layout = found.layout
    assert layout.size == storage.size
    assert found.nbytes == storage.nbytes
    if array.size:
        assert layout.spec.strides == tuple(s // 4 for s in array.strides)
        assert layout.offset == (array.ctypes.data - storage.ctypes.data) // 4
    shown = {cell.index: float(cell.value) for cell in layout.cells if cell.count}
    assert shown == dict(np.ndenumerate(array))
    assert [float(c.value) for c in layout.cells] == storage.ravel().tolist()


@pytest.mark.parametrize("name", VIEWS)
def test_what_copies_is_what_numpy_copies(name: str) -> None:
    storage, tensor, array = pair(VIEWS[name])
    calls = {c.call: c for c in norch.explain(tensor).calls}
    copies = {name for title, c in calls.items() if c.copies for name in title.split(", ")}
    raises = {name for title, c in calls.items() if c.error for name in title.split(", ")}
    if array.size:
        assert ("contiguous()" in copies) == (not np.may_share_memory(np.ascontiguousarray(array), storage))
        assert ("reshape(-1)" in copies) == (not np.may_share_memory(array.reshape(-1), storage))
    assert ("view(-1)" in raises) == ("reshape(-1)" in copies)
    # and it is what norch does
    assert ("contiguous()" in copies) == (tensor.contiguous().data_ptr() != tensor.data_ptr()) or not array.size
    assert ("flatten()" in copies) == (tensor.flatten().buffer is not tensor.buffer)


@pytest.mark.parametrize("name", VIEWS)
def test_dims_merge_where_numpy_flattens_them_without_a_copy(name: str) -> None:
    storage, tensor, array = pair(VIEWS[name])
    for found in norch.explain(tensor).dims if array.size else ():
        a, b = found.dims
        flat = array.reshape(*array.shape[:a], -1, *array.shape[b + 1 :])
        assert found.merges == np.may_share_memory(flat, storage)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((3, 3), (1, 1)),
        ((4, 2), (0, 3)),
        ((2, 3, 2), (3, 1, 3)),
        ((5,), (2,)),
        ((2, 2, 2), (1, 2, 4)),
        ((1, 4), (9, 2)),
    ],
)
def test_indices_of_shared_elements_are_those_that_numpy_finds(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    positions = np.lib.stride_tricks.as_strided(np.arange(32), shape, [8 * s for s in strides])
    for position in range(32):
        indices = [tuple(map(int, i)) for i in np.argwhere(positions == position)]
        assert index_at(shape, strides, position) == (indices[0] if indices else None, len(indices))


def test_indices_are_not_counted_for_ever() -> None:
    index, count = index_at((1000, 1000, 1000), (1, 1, 1), 1500)
    assert index is not None
    assert count > MANY


def test_text() -> None:
    x = norch.arange(6.0).reshape(2, 3)
    y = x.T
    lines = str(norch.explain(y)).splitlines()
    assert lines[0] == "y: float32 on cpu, shape (3, 2), strides (1, 3), offset 0"
    assert lines[2:5] == [
        "position      0     1     2     3     4     5",
        "storage      [0.]  [1.]  [2.]  [3.]  [4.]  [5.]",
        "y            0,0   1,0   2,0   0,1   1,1   2,1",
    ]
    assert lines[6] == "element      y[i, j] is at position i + 3 j"
    assert "             x: shape (2, 3), strides (3, 1), offset 0" in lines
    assert repr(norch.explain(y)) == str(norch.explain(y))


def test_ten_million_elements_take_as_much_room_as_ten() -> None:
    x = norch.arange(10_000_000, dtype=norch.int32).reshape(1000, 100, 100)
    found = norch.explain(x[:, 3])
    assert len(found.layout.cells) < 20
    assert len(str(found).splitlines()) < 24
    assert len(found.svg()) < 20_000
    values = {cell.position: cell.value for cell in found.layout.cells}
    assert values[300] == "300"
    assert values[10_300] == "10300"  # the next one along dim 0
    assert values[9_999_999] == "9999999"
    assert "are at 300, 301, ..., 399, 10,300, ..." in " ".join(str(found).split())


@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (lambda: norch.tensor(3.5), ["storage      [3.5000]", "t               ()", "element      t is at position 0"]),
        (lambda: norch.empty(0, 3), ["storage      0 elements, 0 bytes; the tensor has no elements"]),
        (lambda: norch.tensor([True, False]), ["storage      [True]  [False]"]),
        (lambda: norch.tensor([1.5, 2.0], dtype=norch.bfloat16), ["storage      [1.5000]  [2.0000]"]),
        (lambda: norch.tensor([1.5, 2.0], dtype=norch.float16), ["storage      [1.5000]  [2.0000]"]),
        (lambda: norch.tensor([1.0, 2.0]).to(norch.float8_e4m3fn), ["storage      [1.]  [2.]"]),
        (lambda: norch.tensor([1, 2]).expand(3, 2), ["t            0,0 x3  0,1 x3"]),
        (lambda: norch.tensor(7).expand(2, 2), ["t            0,0 x4", "element      t[i, j] is at position 0"]),
        (lambda: norch.zeros(2, 2, device="meta").T, ["storage      [?]  [?]  [?]  [?]"]),
        (lambda: norch.zeros(7, 1, 1, 1, 1, 1, 1), ["element      t[i0, i1, i2, i3, i4, i5, i6] is at position i0"]),
    ],
)  # fmt: skip
def test_odd_tensors(make: Callable[[], norch.Tensor], lines: list[str]) -> None:
    found = norch.explain(make())
    text = str(found).splitlines()
    assert set(lines) <= set(text)
    ET.fromstring(found.svg())


def test_other_tensors_on_the_storage_are_named() -> None:
    x = norch.arange(6.0)
    y, parts = x[1:3], [x[4:]]
    found = norch.explain(y)
    named = {s.name: s for s in found.sharing}
    assert set(named) == {"x", "parts[0]"}
    assert named["x"].relation == "base"
    assert (named["parts[0]"].offset, named["parts[0]"].shape) == (4, (2,))
    assert {s.relation for s in norch.explain(x).sharing} == {"view of it"}
    del y, parts, found
    assert norch.explain(x).sharing == ()


def test_an_explanation_keeps_nothing_alive() -> None:
    from weakref import ref

    x = norch.zeros(3)
    found, buffer = norch.explain(x), ref(x.buffer)
    del x
    assert buffer() is None
    assert str(found).startswith("x: ")


def test_the_variables_of_a_program_stay_its_own() -> None:
    x = norch.zeros(3)
    variables = locals()
    found = norch.explain(x)
    assert variables["x"] is x
    assert found.name == "x"


def test_the_device_is_read_where_cells_are_shown_only(device: norch.Device) -> None:
    x = norch.arange(1000, device=device).reshape(10, 100)[2:4]
    cells = {c.position: c.value for c in norch.explain(x).layout.cells}
    assert all(int(value) == position for position, value in cells.items())


def test_pictures_mark_the_cells() -> None:
    x = norch.arange(6.0).reshape(2, 3)
    root = ET.fromstring(norch.explain(x[:, 1:]).svg())
    strip = [r for r in root.iter(f"{SVG}rect") if "=" in r.find(f"{SVG}title").text]
    assert [r.get("class") for r in strip] == [
        "box dashed", "box blue", "box blue", "box dashed", "box orange", "box orange",
    ]  # fmt: skip
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert {"dim 0: stride 3", "dim 1: stride 1", "1,0"} <= set(texts)


def test_notebooks_show_the_text_and_the_picture() -> None:
    x = norch.tensor([[1.0, 2.0]])
    page = x._repr_html_()
    assert page.startswith("<pre>tensor([[1., 2.]])</pre>\n<svg ")
    ET.fromstring(page.partition("\n")[2])
    assert "prefers-color-scheme" not in page  # the page around it has colours
    assert norch.explain(x)._repr_html_().startswith("<svg ")
    assert x.to_sparse()._repr_html_() is None


def test_files(tmp_path: Any) -> None:
    x = norch.arange(3)
    norch.explain(x).save(tmp_path / "x.svg")
    assert "prefers-color-scheme" in (tmp_path / "x.svg").read_text(encoding="utf-8")


def test_what_has_no_strides_is_refused() -> None:
    with pytest.raises(norch.DTypeError, match=r"explain\(\): a SparseTensor has no strides"):
        norch.explain(norch.eye(2).to_sparse())
    with pytest.raises(norch.DTypeError, match=r"explain\(\): a Batched has no strides"):
        norch.vmap(norch.explain)(norch.eye(2))
    with pytest.raises(norch.DTypeError, match=r"explain\(\): expected a Tensor"):
        norch.explain(3)


def test_a_step_that_is_captured_is_none_the_worse() -> None:
    @norch.capture
    def step(x: norch.Tensor) -> norch.Tensor:
        y = x * 2
        texts.append(str(norch.explain(y)))
        return y + 1

    texts: list[str] = []
    for i in range(6):
        assert step(norch.full((3,), float(i))).tolist() == [2 * i + 1] * 3
    assert "[?]" in texts[1]  # while it is recorded, values are not read
    assert step.report().replayed > 0
