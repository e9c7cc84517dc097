"""tools/release_build.py and release_try.py, without building: what they take from the README, and what they refuse."""

import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import release_build  # noqa: E402
import release_try  # noqa: E402


def test_the_commands_are_those_of_the_readmes_install_section():
    assert release_try.installs() == [["norch-core", "norch-cpu", "norch-nn"], ["norch-core", "norch-cuda"]]


def test_every_example_script_is_tried():
    assert set(release_try.EXAMPLES) == {path.name for path in (ROOT / "examples").glob("*.py")}


def test_what_wheels_need_is_looked_up_elsewhere_but_norch_is_not(tmp_path):
    needs = ("norch-core>=0.1,<0.2", "numpy>=1.26", 'wood; extra == "beads"')
    metadata = "Name: norch-abacus\n" + "".join(f"Requires-Dist: {need}\n" for need in needs)
    path = tmp_path / "norch_abacus-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("norch_abacus-1.0.dist-info/METADATA", metadata)
    assert release_try.requirements([path]) == ["numpy>=1.26"]


def test_a_build_that_differs_from_the_first_is_refused_and_both_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(release_build, "DIST", tmp_path / "dist")
    (tmp_path / "dist").mkdir()
    same, first, second = (tmp_path / part / "a.whl" for part in "sft")
    for path, data in ((same, b"1"), (first, b"1"), (second, b"2")):
        path.parent.mkdir()
        path.write_bytes(data)
    release_build.compare([first], [same])
    with pytest.raises(release_build.Failed, match=r"a second build gave another a\.whl"):
        release_build.compare([first], [second])
    assert {path.name: path.read_bytes() for path in (tmp_path / "dist").iterdir()} == {
        "a.whl": b"1",
        "a.whl.again": b"2",
    }


def test_a_package_that_there_is_not(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["release_build.py", "gpu"])
    with pytest.raises(SystemExit):
        release_build.main()
    assert "there is no package gpu, only core, nn, cpu, cuda" in capsys.readouterr().err
