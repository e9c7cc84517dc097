"""norch new-backend writes a whole package, whose backend passes (that it installs: tests/test_new_backend.py)."""

from __future__ import annotations

import importlib
import sys
import tomllib

import pytest

import norch
from norch.__main__ import main
from norch.backend import registry
from norch.scaffold import RESERVED, WORD, ScaffoldError, new_backend
from norch.testing import conformance
from norch.testing.null import NullBackend

PLAIN = {
    "pyproject.toml",
    "README.md",
    ".github/workflows/ci.yml",
    "src/norch_my_chip/__init__.py",
    "src/norch_my_chip/backend.py",
    "tests/test_my_chip.py",
}
NATIVE = PLAIN | {"CMakeLists.txt", "csrc/kernels.cpp", "src/norch_my_chip/native.py"}


def written(folder):
    return {str(f.relative_to(folder).as_posix()) for f in folder.rglob("*") if f.is_file()}


@pytest.mark.parametrize(("native", "files"), [(False, PLAIN), (True, NATIVE)])
def test_the_files_of_a_package(native, files, tmp_path):
    folder = new_backend("my_chip", tmp_path, native=native)
    assert folder == tmp_path / "norch-my-chip"
    assert written(folder) == files
    for file in files:
        text = (folder / file).read_text()
        assert WORD not in text.lower(), file
        if file.endswith(".py"):
            compile(text, file, "exec")
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == "norch-my-chip"
    assert project["project"]["entry-points"]["norch"] == {"my_chip": "norch_my_chip"}
    assert "class MyChipBackend(Backend)" in (folder / "src/norch_my_chip/backend.py").read_text()
    assert ("native.compile(" in (folder / "src/norch_my_chip/backend.py").read_text()) == native


def test_the_backend_is_short_and_passes(tmp_path, monkeypatch):
    folder = new_backend("my_chip", tmp_path) / "src"
    assert len((folder / "norch_my_chip" / "backend.py").read_text().splitlines()) <= 150
    monkeypatch.syspath_prepend(str(folder))
    plugin = importlib.import_module("norch_my_chip")
    try:
        registry.register(plugin.norch_backend(), "norch-my-chip", "0.1.0")
        report = conformance.run("my_chip", [1, 2, 3, 4])
        assert report.passed, report.text()
        assert report.level == 4
        x = norch.tensor([1.0, 2.0], device="my_chip", requires_grad=True)
        norch.softmax(x, 0)[0].backward()
        assert x.grad.tolist() == pytest.approx([0.196612, -0.196612], rel=1e-4)
    finally:
        registry.unregister("my_chip")
        for name in ("norch_my_chip", "norch_my_chip.backend"):
            sys.modules.pop(name, None)


def test_the_command(tmp_path, capsys):
    assert main(["new-backend", "abacus", "--to", str(tmp_path)]) == 0
    assert f"pip install -e {tmp_path / 'norch-abacus'}" in capsys.readouterr().out
    assert main(["new-backend", "abacus", "--to", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{tmp_path / 'norch-abacus'} is there already\n"


def test_the_device_of_a_plugin_that_is_installed_can_be_written_again(tmp_path):
    class Abacus(NullBackend):
        device_type = "abacus"

    registry.register(Abacus())
    try:
        assert main(["new-backend", "abacus", "--to", str(tmp_path)]) == 0
    finally:
        registry.unregister("abacus")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Abacus",
        "9lives",
        "two words",
        "a-b",
        "../up",
        "class",
        "abacus\n",
        "exp",
        "a_",
        "a__b",
        "special",
        "serialization",
        *sorted(RESERVED),
    ],
)
def test_a_name_that_no_device_can_have(name, tmp_path, capsys):
    with pytest.raises(ScaffoldError, match="cannot be a device type|is a name of norch's own"):
        new_backend(name, tmp_path)
    assert main(["new-backend", name, "--to", str(tmp_path)]) == 2
    assert repr(name) in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["new-backend", "abacus", "--to", str(tmp_path / "file")]) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err
