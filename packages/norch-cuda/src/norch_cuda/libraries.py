"""Where NVIDIA's libraries are, all opened at first use: in its wheels, in a toolkit, or where the system looks."""

from __future__ import annotations

from ctypes import CDLL
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class Library(NamedTuple):
    """What it is called, its file, what it is for, and what pip installs."""

    title: str
    file: str
    purpose: str
    package: str


USED = {
    "cublasLt": Library("cuBLASLt", "libcublasLt.so.13", "matrix products", "nvidia-cublas"),
    "cudnn": Library("cuDNN", "libcudnn.so.9", "faster convolutions and attention", "norch-cuda[cudnn]"),
    "cusolver": Library("cuSOLVER", "libcusolver.so.12", "norch.linalg", "norch-cuda[linalg]"),
    "nvrtc": Library("NVRTC", "libnvrtc.so.13", "compiled chains of norch.capture", "norch-cuda[nvrtc]"),
    "nccl": Library("NCCL", "libnccl.so.2", "norch.distributed", "norch-cuda[nccl]"),
}
"""By the names that `find` takes."""

_IN_WHEELS = {"cudnn": "cudnn/lib/libcudnn.so.9"}
"""Below the folders of the package `nvidia`: of libraries that not every release of cuda-pathfinder knows."""


def find(name: str) -> str:
    """The path of the library `name`, such as "cublasLt"; nothing where it is not found."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = load_nvidia_dynamic_lib(name).abs_path
    except Exception:  # the system's own search is tried next, and that one's failure is reported
        found = None
    return found or _in_wheels(name)


def _in_wheels(name: str) -> str:
    place, spec = _IN_WHEELS.get(name), find_spec("nvidia")
    if place is None or spec is None:
        return ""
    paths = [Path(folder) / place for folder in spec.submodule_search_locations or ()]
    return next((str(path) for path in paths if path.is_file()), "")


def is_there(name: str) -> bool:
    """Whether a library of USED can be opened."""
    if find(name):
        return True
    try:
        CDLL(USED[name].file)
    except OSError:
        return False
    return True
