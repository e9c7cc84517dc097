"""norch in place of PyTorch: `import torch` means norch in this process, in a script and in all that it imports.

    import norch.compat.standin
    norch.compat.standin.install()

or, from the shell, `norch run --as-torch script.py arguments...`, with -m before the name of a module, as Python has
it. With `--report` this lists what the script asked for and norch lacks. Python processes that such a script starts
take norch for PyTorch as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
from contextlib import suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from warnings import warn

from .. import shown
from ..ops.generator import Generator
from ..scripts import run_script
from ..submodules import missing_names
from ..tensor import Tensor
from ..version import __version__
from .torch_version import TorchVersion

MEANS = {"torch": "norch", "torchvision": "norch.vision", "functorch": "norch.func"}
VERSIONS = {"torch": "2.13.0", "torchvision": "0.28.0"}
"""Of PyTorch, by whose documentation norch goes: scripts ask for at least some version."""


IN_PLACE = {
    **dict.fromkeys(
        [
            f"torchvision.{name}"
            for name in ("extension", "_meta_registrations", "_autograd_registrations", "ops._register_onnx_ops")
        ],
        "norch.vision.compiled",
    ),
    "torchaudio._extension": "norch.compat.audio_ops",
}
"""Modules of installed packages that speak to their compiled library, or trace models, and what is in their place."""


def _ours(name: str) -> str:
    if name in IN_PLACE and (_Torchvision.runs or not name.startswith("torchvision.")):
        return IN_PLACE[name]
    root, dot, rest = name.partition(".")
    return MEANS[root] + dot + rest


class _Alias(Loader):
    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        try:
            sys.modules[name] = import_module(_ours(name))
            _set_version(name, sys.modules[name])
            _keep_functions(name, sys.modules[name])
            if name == "torch":
                import_module("multiprocessing.connection")  # which PyTorch imports, and scripts name
            if name in ("torch", "torch.nn"):
                import_module("norch.tensor.sharing").share_with_processes()
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("norch"):
                raise
            missing_names[_ours(name)] = None
            raise ModuleNotFoundError(f"norch, here in place of PyTorch, has no {name}", name=name) from None


def _keep_functions(name: str, package: ModuleType) -> None:
    """Imports the modules that share their name with a function of the package, which importing them would replace."""
    for part, found in vars(package).items():
        module = sys.modules.get(f"{_ours(name)}.{part}")
        if module is not None and module is not found:
            sys.modules.setdefault(f"{name}.{part}", module)


def _set_version(name: str, module: ModuleType) -> None:
    if name in VERSIONS:
        version = f"{VERSIONS[name]}+norch.{__version__}"
        vars(module)["__version__"] = TorchVersion(version) if name == "torch" else version
    if name == "torch":
        vars(module).update(torch=module, __name__="torch")  # as PyTorch's module has itself


class _Torchvision(Loader):
    """Runs an installed torchvision's own Python; where it does not run on norch, norch.vision stands in its place."""

    runs = False

    def __init__(self, spec: ModuleSpec) -> None:
        self.spec = spec

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        loader: Any = self.spec.loader
        type(self).runs = True
        try:
            loader.exec_module(module)
        except (ImportError, AttributeError) as error:
            type(self).runs = False
            for name in [name for name in sys.modules if name.startswith("torchvision.")]:
                del sys.modules[name]
            _Alias().exec_module(module)
            warn(
                f"the torchvision that is installed does not run on norch, norch.vision is used: {error}", stacklevel=2
            )


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        root = fullname.partition(".")[0]
        if root not in MEANS and fullname not in IN_PLACE:
            return None
        if fullname == "torchvision":
            spec = PathFinder.find_spec(fullname)
            if spec is not None and spec.loader is not None and find_spec("norch.vision") is not None:
                return spec_from_file_location(
                    fullname,
                    spec.origin,
                    loader=_Torchvision(spec),
                    submodule_search_locations=spec.submodule_search_locations,
                )
            _Torchvision.runs = False
        elif root == "torchvision" and _Torchvision.runs and fullname not in IN_PLACE:
            return None
        return ModuleSpec(fullname, _Alias(), is_package=True)


COMPILED = frozenset(
    "apex deepspeed fbgemm_gpu flash_attn mamba_ssm pyg_lib torch_cluster torch_scatter torch_sparse "
    "torch_xla torchao torchcodec torchtext xformers".split()
)
"""Packages whose compiled code is made for PyTorch's own: with norch in its place they are as if not installed."""


class _WithoutCompiled(PathFinder):
    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return None if fullname.partition(".")[0] in COMPILED else super().find_spec(fullname, path, target)


_finder = _Finder()
_MODULES = {kind: kind.__module__ for kind in (Tensor, Generator)}


def install() -> None:
    """From now on `torch`, `torchvision` and `functorch` are norch's in this process. A second call does nothing.

    A torchvision that is installed is itself, its compiled ops norch.vision's; where there is none it is norch.vision.
    `torch.__version__` is the version of PyTorch that norch goes by, with norch's own behind a +.
    Raises ImportError where PyTorch itself is loaded already: two of them would mix.
    """
    if _finder in sys.meta_path:
        return
    for name, ours in MEANS.items():
        loaded = sys.modules.get(name)
        if loaded is not None and loaded is not sys.modules.get(ours):
            raise ImportError(
                f"{name} is already loaded from {getattr(loaded, '__file__', 'somewhere')}: install norch in its place "
                "before anything imports it",
                name=name,
            )
    shown.set_root("torch")
    Tensor.__module__, Generator.__module__ = "torch", "torch._C"  # by which packages such as autoray tell whose it is
    sys.meta_path[:] = [_finder, *[_WithoutCompiled if f is PathFinder else f for f in sys.meta_path]]


def uninstall() -> None:
    """Undoes `install`: what is imported from now on is PyTorch's own, if there is one."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        for kind, name in _MODULES.items():
            kind.__module__ = name
        shown.set_root("norch")
        sys.meta_path[:] = [PathFinder if f is _WithoutCompiled else f for f in sys.meta_path]
    for name in [name for name in sys.modules if name.partition(".")[0] in (*MEANS, "torchaudio")]:
        if name in VERSIONS and sys.modules[name] is sys.modules.get(MEANS[name]):
            vars(sys.modules[name])["__version__"] = __version__
        if vars(sys.modules[name]).pop("torch", None) is not None:
            vars(sys.modules[name])["__name__"] = "norch"
        del sys.modules[name]


def report() -> str:
    """What was asked for and is missing, under PyTorch's names, a line each."""
    theirs = [name.replace("norch.vision", "torchvision", 1).replace("norch", "torch", 1) for name in missing_names]
    return "\n".join(["norch lacks of what was asked for:", *theirs] if theirs else ["norch lacks nothing of it"])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--as-torch", action="store_true", help="import torch, and torchvision, gives norch")
    parser.add_argument("--report", action="store_true", help="list at the end what was asked for and norch lacks")
    parser.add_argument("-n", type=int, metavar="PROCESSES", help="start that many, by mpirun")
    parser.add_argument("-m", dest="module", action="store_true", help="what to run is a module, as python -m has it")
    parser.add_argument("script", help="the Python file to run, or with -m the module")
    parser.add_argument("arguments", nargs="...", help="its arguments")


def main(options: argparse.Namespace) -> int:
    """Runs the script as Python would, in this process or with -n in several, and returns its exit status."""
    if options.n is not None:
        return _mpirun(options)
    if "PMI_RANK" in os.environ or "OMPI_COMM_WORLD_RANK" in os.environ:
        with suppress(ModuleNotFoundError):
            import_module("norch.distributed.launch").export()
    if options.as_torch:
        install()
        _tell_children()
    try:
        return run_script(options.script, options.arguments, options.module)
    finally:
        if options.report:
            print(report(), file=sys.stderr)


def _tell_children() -> None:
    """Has Python processes that the program starts take norch for PyTorch as well."""
    folder = str(Path(__file__).with_name("as_torch"))
    known = os.environ.get("PYTHONPATH")
    if known is None or folder not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *([known] if known else [])])


def _mpirun(options: argparse.Namespace) -> int:
    """Becomes mpirun, which starts this command without -n so many times."""
    beside = Path(sys.executable).with_name("mpirun")
    command = str(beside) if beside.exists() else shutil.which("mpirun")
    if command is None:
        print("norch run -n: there is no mpirun; try: pip install norch-nn[mpi]", file=sys.stderr)
        return 2
    flags = ["--as-torch"] * options.as_torch + ["--report"] * options.report + ["-m"] * options.module
    own = [sys.executable, "-m", "norch", "run", *flags, options.script, *options.arguments]
    if "MASTER_ADDR" not in os.environ:  # scripts ask for it
        with socket.create_server(("127.0.0.1", 0)) as server:
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1])}
    sys.stdout.flush()
    os.execv(command, [command, "-n", str(options.n), *own])
