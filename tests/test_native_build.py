"""tools/native.py: what it says while it builds, and where it cannot."""

import os
import platform
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "native.py"
UV = """\
import os, pathlib, sys
if sys.argv[1] == "build":
    print(os.environ["NORCH_CPU_BUILD"], "build in", os.environ["SKBUILD_BUILD_DIR"])
    for line in {lines}:
        print(line)
    wheels = pathlib.Path(sys.argv[sys.argv.index("--out-dir") + 1])
    wheels.mkdir(parents=True)
    (wheels / "norch_cpu-1.0-cp311-abi3-linux_x86_64.whl").touch()
    sys.exit({build})
with open({log!r}, "a") as log:
    print(*sys.argv[1:], file=log)
if {tools}:
    print("error: Failed to fetch: https://index.example/simple/nanobind/")
sys.exit({tools})
"""
COMPILED = [f"[{n}/3] Building CXX object csrc/file{n}.cpp.o" for n in (1, 2)] + ["[3/3] Linking CXX shared module"]


@pytest.fixture
def tool(tmp_path):
    """Runs a copy of the tool with a uv that does as it is told, and a PATH of its own with what is asked for."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / TOOL.name).write_bytes(TOOL.read_bytes())
    package = tmp_path / "packages" / "norch-cpu"
    package.mkdir(parents=True)
    (package / "pyproject.toml").write_text("[build-system]\nrequires = ['nanobind>=3']\n")
    (tmp_path / "bin").mkdir()

    def run(*args, compilers=("c++",), tools=0, build=0, lines=COMPILED, **environment):
        given = {"lines": lines, "build": build, "tools": tools}
        given |= {"log": str(tmp_path / "installed.txt")}
        (tmp_path / "uv.py").write_text(UV.format(**given))
        (tmp_path / "uv").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path / "uv.py"}" "$@"\n')
        (tmp_path / "uv").chmod(0o755)
        for name in compilers:
            (tmp_path / "bin" / name).write_text("")
            (tmp_path / "bin" / name).chmod(0o755)
        env = {k: v for k, v in os.environ.items() if k not in ("CXX", "NORCH_CPU_BUILD")}
        env |= {"PATH": str(tmp_path / "bin"), "HATCH_UV": str(tmp_path / "uv"), **environment}
        command = [sys.executable, tmp_path / "tools" / TOOL.name, *(args or ["cpu"])]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    return run


def test_progress_and_the_end_of_it(tool):
    done = tool()
    assert done.returncode == 0, done.stderr
    assert "norch-cpu: compiling, 1 of 3\n" in done.stdout
    assert "norch-cpu: built in 0 s\n" in done.stdout


def test_the_tools_stay_apart_and_the_wheel_comes_here(tool, tmp_path):
    tool("--no-deps", "cpu")
    made, tools, wheel = (tmp_path / "installed.txt").read_text().splitlines()
    apart = str(tmp_path / "build" / "norch-cpu-native" / "tools")
    assert made.startswith("venv ")
    assert made.endswith(f" {apart}")
    assert f" --python {apart}" in tools
    assert tools.endswith(" nanobind>=3 cmake>=3.25 ninja>=1.11")
    assert f" --python {sys.executable} --no-deps " in wheel
    assert wheel.endswith("linux_x86_64.whl")


def test_what_was_built_before_says_nothing(tool, tmp_path):
    (tmp_path / "build" / "norch-cpu-native" / "tools").mkdir(parents=True)
    (tmp_path / "build" / "norch-cpu-native" / "tools" / "pyvenv.cfg").touch()
    done = tool(lines=[])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_two_at_once_wait_for_each_other(tool, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    folder = tmp_path / "build" / "norch-cpu-native"
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as file, ThreadPoolExecutor() as pool:
        fcntl.flock(file, fcntl.LOCK_EX)
        other = pool.submit(tool)
        with pytest.raises(TimeoutError):
            other.result(timeout=0.5)
        assert not (tmp_path / "installed.txt").exists()
        fcntl.flock(file, fcntl.LOCK_UN)
        assert other.result().returncode == 0
    assert (tmp_path / "installed.txt").exists()


@pytest.mark.parametrize(
    ("given", "kind"), [({}, "native"), *(({"NORCH_CPU_BUILD": kind}, kind) for kind in ("full", "check"))]
)
def test_which_build(tool, tmp_path, given, kind):
    tool(lines=["error: so that there is a log"], build=1, **given)
    folder = tmp_path / "build" / f"norch-cpu-{kind}"
    assert f"{kind} build in {folder / 'cmake'}" in (folder / "log.txt").read_text()


def sentence(done):
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("norch-cpu was not built: ")
    assert last.endswith(" Until then norch computes with its NumPy reference.")
    return last


def test_no_compiler(tool):
    assert "there is no C++ compiler here. Install one (GCC 12" in sentence(tool(compilers=()))
    assert "CXX=icpx names no program: correct CXX or unset it." in sentence(tool(CXX="icpx"))


def test_no_package_index(tool):
    done = tool(tools=2)
    assert "what it needs could not be installed (above)." in sentence(done)
    assert "Failed to fetch: https://index.example" in done.stderr


def test_a_build_that_fails(tool, tmp_path):
    done = tool(build=1, lines=[*COMPILED[:1], "file2.cpp:7:1: error: expected unqualified-id"])
    assert "what the compiler said is in " in sentence(done)
    assert "file2.cpp:7:1: error: expected unqualified-id" in done.stderr
    assert COMPILED[0] in (tmp_path / "build" / "norch-cpu-native" / "log.txt").read_text()


def test_a_package_that_there_is_not(tool):
    done = tool("gpu")
    assert done.returncode == 2
    assert "there is no native package gpu, only cpu and cuda" in done.stderr


CMAKE = next(TOOL.parents[1].glob("build/norch-cpu-*/tools/bin/cmake"), None)


@pytest.mark.skipif(CMAKE is None or platform.machine() != "x86_64", reason="needs what a build got, and three modules")
def test_modules_are_linked_in_a_folder_with_a_space(tmp_path):
    def told(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    folder, tools = tmp_path / "a folder", CMAKE.parent
    source = TOOL.parents[1] / "packages" / "norch-cpu"
    nanobind = told(tools / "python", "-m", "nanobind", "--cmake_dir").strip()
    given = {"nanobind_DIR": nanobind, "Python_EXECUTABLE": sys.executable, "CMAKE_MAKE_PROGRAM": tools / "ninja"}
    told(CMAKE, "-S", source, "-B", folder, "-G", "Ninja", *(f"-D{name}={value}" for name, value in given.items()))
    link = told(tools / "ninja", "-C", folder, "-t", "commands", "_avx512.abi3.so").splitlines()[-1]
    paths = [argument for argument in shlex.split(link) if str(tmp_path) in argument]
    assert paths
    assert [argument for argument in paths if str(folder) not in argument] == []
