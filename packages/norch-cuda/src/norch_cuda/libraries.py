"""Where cuBLASLt, cuDNN, NCCL and NVRTC are: in NVIDIA's wheels, in a toolkit, or where the system looks."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

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
