"""Builds norch-cpu or norch-cuda and installs it into the environment that runs this: python tools/native.py cpu

All environments share one build, in build/norch-cpu-native and the like, with an environment of its own for what the
package's build-requires name: the second one compiles nothing, and later only what has changed is compiled.
NORCH_CPU_BUILD=full builds norch-cpu as its wheel has it, for every processor; without it, quickly and for this one.
NORCH_CPU_BUILD=check is full but for what this processor cannot run, of which it only sees whether it compiles.
NORCH_CUDA_BUILD=check builds norch-cuda only to see whether it compiles.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ROOT = Path(__file__).resolve().parents[1]
COMPILERS = ("c++", "g++", "clang++", "cl")  # those that CMake looks for, and which can compile this
HOW = "Debian and Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install"
WITHOUT = {
    "cpu": "Until then norch computes with its NumPy reference.",
    "cuda": "Until then norch computes on the CPU.",
}


class Failed(Exception):
    """What went wrong and what to do about it, in a sentence."""


def compiler() -> str:
    """The C++ compiler that CMake will take."""
    chosen = os.environ.get("CXX", "").split(" ")[0]
    for name in (chosen,) if chosen else COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    if chosen:
        raise Failed(f"CXX={chosen} names no program: correct CXX or unset it.")
    raise Failed(f"there is no C++ compiler here. Install one (GCC 12 or newer, or Clang; {HOW}), and run this again.")


def uv() -> list[str]:
    """uv where hatch or PATH has it, else from the package index."""
    found = os.environ.get("HATCH_UV") or shutil.which("uv")
    if found:
        return [found]
    get_tools([sys.executable, "-m", "pip", "install", "-q", "uv"])
    return [sys.executable, "-m", "uv"]


def get_tools(command: Sequence[str | Path]) -> None:
    """Runs an installer."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(done.stdout.strip(), file=sys.stderr)
        raise Failed(
            "what it needs could not be installed (above). See that the package index can be reached and uv's cache be "
            "written (UV_CACHE_DIR moves it), and run this again."
        )


def requirements(package: Path) -> list[str]:
    """What pyproject.toml says that building needs, and what scikit-build-core runs."""
    with (package / "pyproject.toml").open("rb") as file:
        return [*tomllib.load(file)["build-system"]["requires"], "cmake>=3.25", "ninja>=1.11"]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Waits until no other process builds in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(package: Path, folder: Path) -> Path:
    """Builds the wheel, and shows how far the compiler is."""
    scripts = folder / "tools" / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / "python"
    if not (folder / "tools" / "pyvenv.cfg").exists():
        print(f"{package.name}: getting what builds it, then compiling; later only what changed", flush=True)
        get_tools([*uv(), "venv", "-q", "--clear", "--python", sys.executable, folder / "tools"])
    get_tools([*uv(), "pip", "install", "-q", "--python", python, *requirements(package)])
    wheels = folder / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    command = [*uv(), "build", "--wheel", "--no-build-isolation", "--python", python, "--out-dir", wheels, package]
    environment = os.environ | {
        "SKBUILD_BUILD_DIR": str(folder / "cmake"),
        "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    last: deque[str] = deque(maxlen=400)
    progress, start = Progress(package.name), time.monotonic()
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    with subprocess.Popen(command, env=environment, **output) as run:
        assert run.stdout is not None
        try:
            for line in run.stdout:
                last.append(line)
                found = re.search(r"\[(\d+)/(\d+)\] (Building|Linking)", line)
                if found:
                    progress.show(int(found[1]), int(found[2]))
        except KeyboardInterrupt:
            run.terminate()
            raise
    progress.end()
    if run.returncode:
        log = folder / "log.txt"
        log.write_text("".join(last))
        for line in [line for line in last if re.search(r"\berror\b", line, re.IGNORECASE)][:5]:
            print(line.rstrip(), file=sys.stderr)
        raise Failed(f"the build failed; what the compiler said is in {log.relative_to(ROOT)}.")
    if progress.shown:
        print(f"{package.name}: built in {time.monotonic() - start:.0f} s", flush=True)
    (wheel,) = wheels.glob("*.whl")
    return wheel


class Progress:
    """One line that changes on a terminal; elsewhere a line every ten seconds."""

    def __init__(self, name: str) -> None:
        self.name, self.shown, self.last = name, False, float("-inf")
        self.terminal = sys.stdout.isatty()

    def show(self, done: int, total: int) -> None:
        if not self.terminal and time.monotonic() - self.last < 10:
            return
        self.shown, self.last = True, time.monotonic()
        text = f"{self.name}: compiling, {done} of {total}"
        print(f"\r{text}\x1b[K" if self.terminal else text, end="" if self.terminal else "\n", flush=True)

    def end(self) -> None:
        if self.shown and self.terminal:
            print("\r\x1b[K", end="")


def main() -> int:
    parser = argparse.ArgumentParser(description="Build native packages of norch and install them here.")
    parser.add_argument("packages", nargs="*", help="cpu, cuda, both or none")
    parser.add_argument("--tools", action="store_true", help="install here what building needs, and build nothing")
    parser.add_argument("--no-deps", action="store_true", help="without what they need at run time")
    options = parser.parse_args()
    if unknown := set(options.packages) - set(WITHOUT):
        parser.error(f"there is no native package {', '.join(sorted(unknown))}, only {' and '.join(WITHOUT)}")
    kinds = {"cpu": "native", "cuda": "full"}
    for name, kind in kinds.items():
        kinds[name] = os.environ.setdefault(f"NORCH_{name.upper()}_BUILD", kind)
    status = 0
    for name in options.packages:
        package = ROOT / "packages" / f"norch-{name}"
        folder = ROOT / "build" / f"{package.name}-{kinds[name]}"
        install = ["pip", "install", "-q", "--python", sys.executable]
        try:
            compiler()
            if options.tools:
                get_tools([*uv(), *install, *requirements(package)])
            else:
                with alone(folder):
                    wheel = build(package, folder)
                    get_tools([*uv(), *install, *["--no-deps"] * options.no_deps, wheel])
        except KeyboardInterrupt:
            print(f"\n{package.name}: interrupted; what was compiled is kept", file=sys.stderr)
            return 130
        except Failed as error:
            print(f"{package.name} was not built: {error} {WITHOUT[name]}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
