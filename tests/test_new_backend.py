"""What norch new-backend writes installs as any package does, passes the whole kit, and trains the examples."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from norch.scaffold import new_backend

EXAMPLES = Path(__file__).parents[1] / "examples"
INSTALLER = os.environ.get("HATCH_UV") or shutil.which("uv")


def run(arguments, cwd, site=None):
    """A Python of its own, which finds what was installed into `site`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])} if site else None
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def install(folder, site, *options):
    """Without the dependencies, which this environment has."""
    pip = (
        [INSTALLER, "pip", "install", "--python", sys.executable]
        if INSTALLER
        else [sys.executable, "-m", "pip", "install"]
    )
    command = [*pip, "--quiet", "--no-deps", "--target", str(site), *options, str(folder)]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The folder of a plain package, and where it is installed."""
    folder = new_backend("abacus", tmp_path_factory.mktemp("plain"))
    site = folder.parent / "site"
    install(folder, site)
    return folder, site


def passes(folder, site, name):
    """Its own tests, which are the whole kit, and `norch info` lists it."""
    done = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"], folder, site)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 passed" in done.stdout
    done = run(["-m", "norch", "info", "--json"], folder, site)
    (row,) = [row for row in json.loads(done.stdout)["backends"] if row["device"] == name]
    assert row["state"] == "selected"
    assert row["devices"] == 1
    assert (row["distribution"], row["version"]) == (folder.name, "0.1.0")


def test_a_plain_package_installs_and_passes(plain):
    folder, site = plain
    passes(folder, site, "abacus")
    command = ["-m", "norch", "conformance", "--device", "abacus", "--levels", "1-2", "--badge", "badge.md"]
    done = run(command, folder, site)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "norch conformance of abacus:0 (norch-abacus 0.1.0)" in done.stdout
    assert "level 2 of 9" in (folder / "badge.md").read_text()


@pytest.mark.slow
def test_a_native_package_installs_and_passes(tmp_path):
    tools = [name for name in ("scikit_build_core", "nanobind", "ninja") if find_spec(name) is None]
    if tools:
        pytest.skip(f"needs {', '.join(tools)}")
    folder = new_backend("slide_rule", tmp_path, native=True)
    site = tmp_path / "site"
    install(folder, site, "--no-build-isolation")
    passes(folder, site, "slide_rule")
    script = (
        "import norch\nfrom norch.backend import Operand\nfrom norch_slide_rule import native\n"
        "x = Operand(norch.float32, (2,), (1,))\nassert native.compile('add', (x, x, x))\n"
        "assert native.compile('erf', (x, x)) is None\n"
    )
    done = run(["-c", script], tmp_path, site)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("example", "number", "least", "most"),
    [("sin_squared", r"a wider model: mean loss (\S+)", 0, 0.2), ("digits", r"test accuracy (\S+)%", 70, 100)],
)
def test_a_backend_with_only_the_primitives_trains_the_examples(plain, example, number, least, most, tmp_path):
    for module in ("matplotlib", "tqdm", "sklearn"):
        pytest.importorskip(module)
    options = ["--epochs", "1", "--device", "abacus", "--out", "picture.png"]
    done = run([str(EXAMPLES / f"{example}.py"), *options], tmp_path, plain[1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "picture.png").stat().st_size > 1000
    found = re.search(number, done.stdout)
    assert found, done.stdout
    assert least <= float(found[1]) <= most


def test_an_example_names_what_is_installed_when_the_name_is_wrong(plain, tmp_path):
    pytest.importorskip("matplotlib")
    done = run([str(EXAMPLES / "sin_squared.py"), "--device", "abakus"], tmp_path, plain[1])
    assert done.returncode == 2
    assert "abacus: norch-abacus 0.1.0 (norch_abacus): not loaded" in done.stderr
