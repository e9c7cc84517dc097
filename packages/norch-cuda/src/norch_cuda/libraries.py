"""Where cuBLASLt, NCCL and NVRTC are: in NVIDIA's wheels, in a toolkit, or where the system looks."""

from __future__ import annotations


def find(name: str) -> str:
    """The path of the library `name`, such as "cublasLt"; nothing where it is not found."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return load_nvidia_dynamic_lib(name).abs_path or ""
    except Exception:  # the system's own search is tried next, and that one's failure is reported
        return ""
