"""Files of weights by URL, kept where PyTorch keeps them: what either has downloaded, the other finds.

weights = norch.hub.load_state_dict_from_url("https://.../resnet18-f37072fd.pth", map_location="cpu")
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlparse

import norch

from .utils.downloading import WrongHash, fetch

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
"""Finds the first digits of the SHA-256 that a file's name ends with: `resnet18-f37072fd.pth`."""

_folder: str | None = None
_list = list  # which `list` below is not
_OF_DOWNLOADS = ("trust_repo", "force_reload", "verbose", "skip_validation")


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

    repo_or_dir: with source "local", the folder that it lies in; with "github" "owner/name" or "owner/name:branch",
    which PyTorch has downloaded before, into `get_dir()`. PyTorch's `trust_repo`, `force_reload`, `verbose` and
    `skip_validation` are about what it downloads. Raises NotImplementedError for what is not there: norch runs no code
    that it would have to download; RuntimeError for a package that is missing or a model that is not there.
    """
    for option in _OF_DOWNLOADS:
        kwargs.pop(option, None)
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    with _hubconf(repo_or_dir, source) as found:
        return _entry(found, model)(*args, **kwargs)


def list(github: str, *args: Any, **options: Any) -> _list[str]:
    """The names of the functions of a hubconf.py, those that begin with "_" aside. github, and what is raised: as of
    `load`, or a folder. PyTorch's other arguments are about what it downloads."""
    with _hubconf(github) as found:
        return [name for name in dir(found) if callable(getattr(found, name)) and not name.startswith("_")]


def help(github: str, model: str, *args: Any, **options: Any) -> str | None:
    """The docstring of the function `model` of a hubconf.py. Other arguments and what is raised: as of `list`."""
    with _hubconf(github) as found:
        doc: str | None = _entry(found, model).__doc__
        return doc


def _folder_of(repo: str) -> str:
    """Where PyTorch has put a repository of GitHub. Raises NotImplementedError where it is not there."""
    name, _, branch = repo.partition(":")
    for each in (branch,) if branch else ("main", "master"):
        folder = os.path.join(get_dir(), "_".join([*name.split("/"), each.replace("/", "_")]))
        if os.path.isdir(folder):
            return folder
    raise NotImplementedError(f"norch.hub: clone {repo}, and load its folder with source='local'")


@contextmanager
def _hubconf(repo: str, source: str | None = None) -> Iterator[ModuleType]:
    """The module hubconf of a repository, whose folder is one that Python imports from within this context."""
    here = os.path.expanduser(repo)
    folder = here if source == "local" or (source is None and os.path.isdir(here)) else _folder_of(repo)
    spec = spec_from_file_location("hubconf", os.path.join(folder, "hubconf.py"))
    if spec is None or spec.loader is None or not os.path.exists(str(spec.origin)):
        raise FileNotFoundError(f"norch.hub: there is no hubconf.py in {folder}")
    hubconf = module_from_spec(spec)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(hubconf)
        missing = [name for name in getattr(hubconf, "dependencies", ()) if find_spec(name) is None]
        if missing:
            raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
        yield hubconf
    finally:
        sys.path.remove(folder)


def _entry(hubconf: ModuleType, model: str) -> Callable[..., Any]:
    entry = getattr(hubconf, model, None)
    if not callable(entry):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return entry  # type: ignore[no-any-return]


def _check_module_exists(name: str) -> bool:
    """Whether a module of that name can be imported."""
    return find_spec(name) is not None


load_url, _download_url_to_file = load_state_dict_from_url, download_url_to_file  # as in utils.model_zoo

_late = norch.late_submodules(__name__)


def __getattr__(name: str) -> Any:
    return import_module("tqdm").tqdm if name == "tqdm" else _late(name)  # which torchio imports from here
