"""Files of weights by URL, kept where PyTorch keeps them: what either has downloaded, the other finds.

weights = norch.hub.load_state_dict_from_url("https://.../resnet18-f37072fd.pth", map_location="cpu")
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import norch

from .utils.downloading import WrongHash, fetch

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
"""Finds the first digits of the SHA-256 that a file's name ends with: `resnet18-f37072fd.pth`."""

_folder: str | None = None


def get_dir() -> str:
    """The folder of what was downloaded: as `set_dir` said, else $TORCH_HOME/hub, by default ~/.cache/torch/hub."""
    return os.path.join(_get_torch_home(), "hub") if _folder is None else _folder


def _get_torch_home() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", f"{cache}/torch"))


def set_dir(d: str | os.PathLike[str]) -> None:
    """Sets `get_dir()`, in this process."""
    global _folder
    _folder = os.path.expanduser(os.fspath(d))


def download_url_to_file(
    url: str, dst: str | os.PathLike[str], hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Writes what `url` gives to the file `dst`, whole or not at all. `progress`: whether a line on stderr shows it.

    hash_prefix: what its SHA-256 begins with. Raises OSError for what does not come, RuntimeError for another hash.
    """
    target = Path(dst).expanduser()
    try:
        fetch(url, target, (hash_prefix or "").lower(), "sha256", progress)
    except WrongHash as error:
        raise RuntimeError(f"download_url_to_file(): {url}: {error}") from None


def load_state_dict_from_url(
    url: str,
    model_dir: str | os.PathLike[str] | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:
    """What `norch.load` reads from a file of weights, which is downloaded unless it lies in `model_dir` already.

    model_dir: by default `checkpoints` in `get_dir()`. map_location: as of `norch.load`. check_hash: whether the file
    must have the hash that its name ends with. file_name: by default that of the URL. weights_only: as of `norch.load`.
    Raises OSError for what does not come, RuntimeError for another hash, and as `norch.load`.
    """
    folder = Path(get_dir(), "checkpoints") if model_dir is None else Path(model_dir).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / (file_name or Path(urlparse(url).path).name)
    if not file.exists():
        found = HASH_REGEX.search(file.name) if check_hash else None
        download_url_to_file(url, file, found and found.group(1), progress)
    return norch.load(file, map_location=map_location, weights_only=weights_only)


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", **kwargs: Any) -> Any:
    """What the function `model` of a hubconf.py gives for the arguments.

    repo_or_dir: with source "local", the folder that it lies in. PyTorch's `trust_repo`, `force_reload`, `verbose` and
    `skip_validation` are about what it downloads. Raises NotImplementedError for source "github": norch runs no code
    that was not there, clone the repository; RuntimeError for a package that is missing or a model that is not there.
    """
    for option in ("trust_repo", "force_reload", "verbose", "skip_validation"):
        kwargs.pop(option, None)
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        raise NotImplementedError(f"norch.hub.load: clone {repo_or_dir}, and load its folder with source='local'")
    folder = os.path.expanduser(repo_or_dir)
    spec = spec_from_file_location("hubconf", os.path.join(folder, "hubconf.py"))
    if spec is None or spec.loader is None or not os.path.exists(str(spec.origin)):
        raise FileNotFoundError(f"norch.hub.load: there is no hubconf.py in {folder}")
    hubconf = module_from_spec(spec)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(hubconf)
        missing = [name for name in getattr(hubconf, "dependencies", ()) if find_spec(name) is None]
        if missing:
            raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
        entry = getattr(hubconf, model, None)
        if not callable(entry):
            raise RuntimeError(f"Cannot find callable {model} in hubconf")
        return entry(*args, **kwargs)
    finally:
        sys.path.remove(folder)


load_url, _download_url_to_file = load_state_dict_from_url, download_url_to_file  # as in utils.model_zoo

_late = norch.late_submodules(__name__)


def __getattr__(name: str) -> Any:
    return import_module("tqdm").tqdm if name == "tqdm" else _late(name)  # which torchio imports from here
