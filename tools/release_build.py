"""Builds the release into dist/: hatch run release:build [core nn cpu cuda] [--twice]

Of each package an sdist, and of that the wheel, both in an environment of their own, as pip would build them. Native
wheels get manylinux tags; all are checked. What holds the same files twice is the same twice, byte for byte: sdists and
pure wheels are compared with a second build, native wheels too with --twice. norch-cuda needs minutes and 104 MB of
compiler. NORCH_CPU_BUILD=native in the environment makes a norch-cpu in a minute to try this with, not to publish.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PACKAGES = ("core", "nn", "cpu", "cuda")
NATIVE = ("cpu", "cuda")
UV = os.environ.get("HATCH_UV") or shutil.which("uv") or "uv"
DRIVER = "libcuda.so.1"  # belongs to the machine, whatever needs it


class Failed(Exception):
    """Which step failed, and what it printed."""


def run(*command: str | Path, **more: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def commit_time() -> str:
    """Seconds since 1970, of the last commit: what timestamps in the archives are set to."""
    return os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct").strip()


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def build(name: str, folder: Path, wheel: bool = True) -> list[Path]:
    """The sdist of a package and the wheel of that, which has the tags of the systems that it runs on."""
    sdists, wheels = folder / "sdist", folder / "wheel"
    run(UV, "build", "--sdist", "--out-dir", sdists, ROOT / "packages" / f"norch-{name}")
    sdist = only(sdists, "*.tar.gz")
    if not wheel:
        return [sdist]
    # Where it is unpacked is the same each time, since a compiler writes paths into what it makes.
    source = ROOT / "build" / "release" / name
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    try:
        with tarfile.open(sdist) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
            archive.extractall(source)
        inside = {"SKBUILD_BUILD_DIR": str(source / "build")}
        run(UV, "build", "--wheel", "--out-dir", wheels, only(source, "norch_*"), **inside)
    finally:
        shutil.rmtree(source)
    built = only(wheels, "*.whl")
    if name in NATIVE:
        # This machine's C library is new enough; auditwheel adds the tag of the oldest that is. Its own guess fails for
        # a module that calls nothing of the C library.
        system = f"manylinux_{platform.libc_ver()[1].replace('.', '_')}_{platform.machine()}"
        audit = (sys.executable, "-m", "auditwheel", "repair", "--plat", system, "--exclude", DRIVER)
        run(*audit, "--wheel-dir", folder / "repaired", built)
        built = only(folder / "repaired", "*.whl")
    return [sdist, built]


def check(name: str, sdist: Path, wheel: Path) -> None:
    """Raises Failed where something is missing or wrong in the archives of a package."""
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    run(sys.executable, "-m", "check_wheel_contents", "--no-config", wheel)
    licence = (ROOT / "LICENSE").read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        inside = {path: archive.read(path) for path in archive.namelist() if path.endswith("licenses/LICENSE")}
    with tarfile.open(sdist) as archive:
        top = sdist.name.removesuffix(".tar.gz")
        file = archive.extractfile(f"{top}/LICENSE")
        inside[sdist.name] = file.read() if file else b""
    if list(inside.values()) != [licence, licence]:
        raise Failed(f"norch-{name}: the licence is not in {wheel.name} and {sdist.name}")
    if name in NATIVE:
        if "manylinux" not in wheel.name:
            raise Failed(f"{wheel.name} has no manylinux tag")
        run(sys.executable, "-m", "abi3audit", "--strict", "--verbose", wheel)


def compare(first: list[Path], second: list[Path]) -> None:
    for one, other in zip(first, second, strict=True):
        if one.name != other.name or one.read_bytes() != other.read_bytes():
            shutil.copy(one, DIST)
            shutil.copy(other, DIST / f"{other.name}.again")
            raise Failed(f"a second build gave another {one.name}; both are in {DIST}")


def release(name: str, twice: bool) -> None:
    start = time.monotonic()
    print(f"norch-{name}: sdist and wheel ...", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        made = build(name, Path(folder) / "1")
        check(name, *made)
        again = build(name, Path(folder) / "2", wheel=twice or name not in NATIVE)
        compare(made[: len(again)], again)
        for path in made:
            shutil.copy(path, DIST)
            same = "" if len(again) == 2 or path is made[0] else ", not built twice"
            print(f"  {path.name}  {path.stat().st_size / 1e6:.2f} MB{same}")
    print(f"  {time.monotonic() - start:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build and check the release.")
    parser.add_argument("packages", nargs="*", help=f"of {', '.join(PACKAGES)} (default: all)")
    parser.add_argument("--twice", action="store_true", help="build native wheels twice too, and compare")
    options = parser.parse_args()
    chosen = options.packages or PACKAGES
    if unknown := set(chosen) - set(PACKAGES):
        parser.error(f"there is no package {', '.join(sorted(unknown))}, only {', '.join(PACKAGES)}")
    DIST.mkdir(exist_ok=True)
    os.environ["SOURCE_DATE_EPOCH"] = commit_time()
    try:
        for name in chosen:
            for old in DIST.glob(f"norch_{name}-*"):
                old.unlink()
            release(name, options.twice)
    except Failed as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    print(f"in {DIST.relative_to(ROOT)}/; hatch run release:try installs and tries them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
