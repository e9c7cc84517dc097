"""Wheels of pure Python, written without build tools, and a clean environment to install them into."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import norch


def wheel(folder, name, files, entry_points="", version="1.0"):
    """Writes a wheel of `files` (path: text or bytes) into a folder."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    files = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = entry_points.encode()
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def wheel_of(folder, project):
    """The wheel of a project whose sources are pure Python in `src`."""
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    source = project / "src"
    files = {
        str(f.relative_to(source)): f.read_bytes()
        for f in source.rglob("*")
        if f.is_file() and "__pycache__" not in f.parts
    }
    groups = {"console_scripts": about.get("scripts", {}), **about.get("entry-points", {})}
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in groups.items()]
    return wheel(folder, about["name"], files, "\n".join(lines), about.get("version") or norch.__version__)


def environment(folder, wheels, needs):
    """Makes a virtual environment with these wheels; what they need is linked to from the environment of the tests."""
    uv = os.environ.get("HATCH_UV") or shutil.which("uv")
    subprocess.run([sys.executable, "-m", "venv", *["--without-pip"] * bool(uv), folder], check=True)
    python = folder / "bin" / "python"
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.run([python, "-c", purelib], capture_output=True, text=True, check=True).stdout.strip())
    for name in _closure(needs):
        found = importlib.metadata.distribution(name)
        for part in {f.parts[0] for f in found.files or () if f.parts[0] not in ("..", "__pycache__")}:
            if not (site / part).exists():
                (site / part).symlink_to(Path(str(found.locate_file(part))).resolve())
    tool = [uv, "pip", "install", "--offline", "--python", python] if uv else [python, "-m", "pip", "install"]
    subprocess.run([*tool, "-q", "--no-index", "--no-deps", *wheels], check=True)
    return python


def _closure(names):
    """Distributions and what they need, without extras."""
    found, todo = set(), list(names)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # for another system or Python
            continue
        found.add(name)
        todo += [re.split(r"[^\w.-]", need)[0] for need in needs if "extra ==" not in need]
    return found
