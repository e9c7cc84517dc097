"""What the four packages say of themselves agrees, and an sdist of each knows its version."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

import norch

ROOT = Path(__file__).parents[1]
PACKAGES = sorted((ROOT / "packages").glob("norch-*"))
PROJECTS = {path.name: tomllib.loads((path / "pyproject.toml").read_text()) for path in PACKAGES}
NATIVE = [ROOT / "packages" / name for name in ("norch-cpu", "norch-cuda")]


def project(name):
    return PROJECTS[name]["project"]


def test_there_are_four():
    assert list(PROJECTS) == ["norch-core", "norch-cpu", "norch-cuda", "norch-nn"]


@pytest.mark.parametrize("name", PROJECTS)
def test_the_version_is_norch_cores(name):
    assert project(name)["dynamic"] == ["version"]
    if name in ("norch-core", "norch-nn"):
        path = (ROOT / "packages" / name / PROJECTS[name]["tool"]["hatch"]["version"]["path"]).resolve()
        assert path == ROOT / "packages" / "norch-core" / "src" / "norch" / "version.py"
    else:
        assert PROJECTS[name]["tool"]["dynamic-metadata"] == [{"provider": {"path": ".", "module": "norch_version"}}]


def provider(path):
    spec = importlib.util.spec_from_file_location("norch_version", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.dynamic_metadata({}, {})["version"]


@pytest.mark.parametrize("package", NATIVE, ids=lambda path: path.name)
def test_native_packages_read_it_in_a_checkout_and_in_an_sdist(package, tmp_path):
    assert provider(package / "norch_version.py") == norch.__version__
    shutil.copy(package / "norch_version.py", tmp_path)
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: norch-cpu\nVersion: 7.8.9\n")
    assert provider(tmp_path / "norch_version.py") == "7.8.9"


def test_siblings_take_every_norch_core_of_this_minor():
    major, minor = map(int, norch.__version__.split(".")[:2])
    wanted = f"norch-core>={major}.{minor},<{major}.{minor + 1}"
    for name in set(PROJECTS) - {"norch-core"}:
        assert [need for need in project(name)["dependencies"] if need.startswith("norch-")] == [wanted], name


def test_each_has_the_licence_and_tells_where_it_comes_from():
    licence = (ROOT / "LICENSE").read_bytes()
    for path in PACKAGES:
        about = project(path.name)
        assert (path / "LICENSE").read_bytes() == licence, path.name
        assert (about["license"], about["license-files"]) == ("Apache-2.0", ["LICENSE"])
        assert about["urls"] == project("norch-core")["urls"]
        assert about["keywords"]
        assert about["classifiers"] == sorted(about["classifiers"]), path.name
        assert not re.search(r"\]\(\.", (path / "README.md").read_text()), "a relative link leads nowhere on an index"


def test_what_two_packages_need_alike_is_the_same():
    native = [(path / "norch_version.py").read_bytes() for path in NATIVE]
    assert native[0] == native[1]


def test_uv_may_lie_in_a_folder_with_a_space_in_its_name():
    around = re.findall(r"(.)\{env:HATCH_UV:uv\}(.)", (ROOT / "pyproject.toml").read_text())
    assert around
    assert set(around) == {("'", "'")}


def test_fragments_of_the_changelog_have_names_that_towncrier_takes():
    known = r"README\.md|(\d+|\+[\w-]+)\.(added|changed|fixed|removed)(\.\d+)?\.md"
    for path in (ROOT / "changes").iterdir():
        assert re.fullmatch(known, path.name), path.name
        assert path.read_text().strip()


@pytest.mark.skipif(not importlib.util.find_spec("hatchling"), reason="needs hatchling")
@pytest.mark.parametrize("name", ["norch-core", "norch-nn"])
def test_an_sdist_of_pure_python_builds_the_wheel_that_the_checkout_builds(name, tmp_path):
    def build(folder, *kind):
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path), *kind]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)

    build(ROOT / "packages" / name, "-t", "sdist", "-t", "wheel")
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    first = wheel.read_bytes()
    wheel.unlink()
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
        archive.extractall(tmp_path)
    build(tmp_path / sdist.name.removesuffix(".tar.gz"), "-t", "wheel")
    assert wheel.read_bytes() == first
