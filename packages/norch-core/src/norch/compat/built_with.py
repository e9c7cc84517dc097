"""What PyTorch says under old names that it was built with: `torch.has_cuda` and the like."""

from __future__ import annotations

from importlib import import_module
from warnings import warn

_DEPRECATED = {
    "has_cuda": "cuda.is_built",
    "has_cudnn": "cudnn.is_available",
    "has_mkldnn": "mkldnn.is_available",
    "has_mps": "mps.is_built",
}
_ASKED = {"has_mkl": "mkl.is_available", "has_openmp": "openmp.is_available"}
_ALWAYS = ("has_lapack", "has_spectral")


def find(name: str) -> bool | None:
    """What `torch.has_...` says, or None if there is no such name: True of decompositions and Fourier transforms, of
    the others what `norch.backends` says. PyTorch deprecates some."""
    if name in _ALWAYS:
        return True
    instead = _DEPRECATED.get(name) or _ASKED.get(name)
    if instead is None:
        return None
    if name in _DEPRECATED:
        warn(f"'{name}' is deprecated, please use 'torch.backends.{instead}()'", stacklevel=3)
    library, question = instead.split(".")
    answer: bool = getattr(getattr(import_module("norch.backends"), library), question)()
    return answer
