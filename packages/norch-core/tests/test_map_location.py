"""`map_location` of `norch.load` as a function."""

from __future__ import annotations

from pathlib import Path

import pytest

import norch
from norch import DeviceError


def test_functions_that_restore_by_the_name_of_a_device(tmp_path: Path) -> None:
    from norch.serialization import default_restore_location, location_tag

    path = tmp_path / "x"
    norch.save({"a": norch.ones(2)}, path)
    seen = []

    def place(tensor: norch.Tensor, location: str) -> norch.Tensor:
        seen.append(location)
        return default_restore_location(tensor, "cpu")

    assert norch.load(path, map_location=place)["a"].tolist() == [1, 1]
    assert seen == [location_tag(norch.ones(1).untyped_storage())]
    with pytest.raises(DeviceError):
        default_restore_location(norch.ones(1), "nowhere:0")
