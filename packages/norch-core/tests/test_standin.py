"""norch in place of PyTorch: paths that are no files, `norch run --as-torch`, `norch check`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import norch
from norch.__main__ import main
from norch.compat import check, lacks
from norch.compat.paths import PLACES


def run(code: str, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=folder, env=dict(os.environ)
    )


def test_paths_are_imported_and_reached_by_attributes() -> None:
    import norch.cuda.amp.grad_scaler
    import norch.distributions.categorical
    import norch.random
    from norch.autograd.variable import Variable
    from norch.random import fork_rng

    assert norch.cuda.amp.grad_scaler.GradScaler is norch.cuda.amp.GradScaler
    assert norch.amp.autocast_mode.autocast is norch.autocast
    assert norch.distributions.categorical.Categorical is norch.distributions.Categorical
    assert Variable is norch.autograd.Variable
    assert fork_rng is norch.random.fork_rng
    assert repr(norch.cuda) == "<device module norch.cuda>"
    import norch.backends.cudnn as cudnn

    assert cudnn is norch.backends.cudnn
    with pytest.raises(ModuleNotFoundError):
        import_module("norch.backends.nothing")
    assert norch.jit.script(len) is len
    assert norch.jit.wait(norch.jit.fork(max, [1, 3], default=0)) == 3


def test_no_path_hides_a_function() -> None:
    code = """
from importlib import import_module
import norch, sys
from norch.compat.paths import FUNCTIONS, PLACES
outside = "fx", "nn", "optim", "utils", "vision", "distributed"
for path in [p for p in PLACES if p not in FUNCTIONS and not p.startswith(outside)]:
    parent, _, name = f"norch.{path}".rpartition(".")
    before = vars(import_module(parent)).get(name) if parent != "norch.cuda" else None
    assert before is None or isinstance(before, type(sys)), path
names = [p.removeprefix("autograd.") for p in PLACES if p.startswith("autograd.") and p not in FUNCTIONS]
assert names and not any(callable(getattr(norch.autograd, name)) for name in names)
"""
    assert run(code).stderr == ""


@pytest.mark.parametrize(
    "path", [p for p in PLACES if not p.startswith(("fx", "nn", "optim", "utils", "vision", "distributed"))]
)
def test_every_path_is_a_module(path: str) -> None:
    assert import_module(f"norch.{path}") is not None


def test_what_is_lacking_raises_when_it_is_used() -> None:
    from norch.onnx import export

    assert not isinstance(norch.ones(1), export)
    with pytest.raises(NotImplementedError, match=r"norch has no onnx\.export; norch\.save"):
        export()
    with pytest.raises(ModuleNotFoundError, match=r"norch\.monitor"):
        import_module("norch.monitor")
    with pytest.raises(AttributeError, match="no attribute 'trce'"):
        norch.jit.trce


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (path, name)
        for path, groups in lacks.LACKS.items()
        if not path.startswith(("distributed", "fx", "hub", "nn", "utils", "vision"))
        for names, _ in groups
        for name in names.split()
    ],
)
def test_what_is_lacking_can_be_named(path: str, name: str) -> None:
    module = import_module(f"norch.{path}".rstrip("."))
    kind = getattr(module, name)
    assert kind is getattr(module, name)
    assert not isinstance(norch.ones(1), kind)
    with pytest.raises(NotImplementedError, match=f"norch has no .*{name}; "):
        kind()


def test_names_of_the_compiled_part() -> None:
    from norch._C import Generator, default_generator
    from norch._ops import ops

    assert ops is norch.ops
    assert (Generator, default_generator) == (norch.Generator, norch.default_generator)
    assert norch._C._get_graph_executor_optimize(True) is True
    with pytest.raises(NotImplementedError, match="norch has no ao.quantization.quantize_fx.prepare_fx; "):
        norch.ao.quantization.quantize_fx.prepare_fx()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
def test_a_forked_process_knows_what_was_used_before() -> None:
    code = """
import os, norch
before = norch.device_module.DeviceModule("cpu")
assert before.is_available() and not before._is_in_bad_fork() and not norch.cuda._is_in_bad_fork()
child = os.fork()
if not child:
    after = norch.device_module.DeviceModule("cpu")
    os._exit(not (before._is_in_bad_fork() and after.is_available() and not after._is_in_bad_fork()))
assert os.waitpid(child, 0)[1] == 0
"""
    assert run(code).stderr == ""


def test_isinstance_of_annotations() -> None:
    holds = norch.jit.isinstance
    assert holds([1, 2], list[int])
    assert not holds([1, "2"], list[int])
    assert holds({"a": [1.0]}, dict[str, list[float]])
    assert holds((1, "a"), tuple[int, str])
    assert not holds((1,), tuple[int, str])
    assert holds(None, int | None)
    assert holds(norch.ones(1), (int, norch.Tensor))
    assert not holds(3, list[int])


def test_tensors_are_flattened_and_back() -> None:
    tensors = [norch.arange(6).reshape(2, 3), norch.tensor(7), norch.arange(2)]
    flat = norch._utils._flatten_dense_tensors(tensors)
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 7, 0, 1]
    back = norch._utils._unflatten_dense_tensors(flat, tensors)
    assert [x.tolist() for x in back] == [x.tolist() for x in tensors]


def test_install_makes_torch_norch() -> None:
    code = """
import norch.compat as standin
standin.install(); standin.install()
import torch, torch.cuda.amp, norch
from torch.autograd import Variable
assert torch is norch is torch.torch and torch.cuda.amp is norch.cuda.amp
assert norch.__spec__.name == "norch" and torch.__name__ == "torch"
try:
    import torch.monitor
except ModuleNotFoundError as error:
    print(error)
torch.nothing_of_that_name if hasattr(torch, "nothing_of_that_name") else None
print(standin.report())
version, ours = torch.__version__.split("+")
assert tuple(map(int, version.split("."))) >= (2, 0) and ours == "norch.0.1.0"
standin.uninstall()
assert norch.__version__ == "0.1.0" and norch.__name__ == "norch" and not hasattr(norch, "torch")
assert "torch" not in __import__("sys").modules
"""
    done = run(code)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "norch, here in place of PyTorch, has no torch.monitor",
        "norch lacks of what was asked for:", "torch.monitor", "torch.nothing_of_that_name",
    ]  # fmt: skip


def test_what_is_compiled_for_pytorch_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "xformers.py").write_text("raise ImportError('libtorch.so')")
    code = """
import importlib.util, sys, norch.compat as standin
before = list(sys.meta_path)
standin.install()
assert importlib.util.find_spec("xformers") is None
try:
    import xformers
except ModuleNotFoundError as error:
    print(error)
standin.uninstall()
assert sys.meta_path == before and importlib.util.find_spec("xformers") is not None
"""
    done = run(code, folder=tmp_path)
    assert (done.stdout, done.stderr) == ("No module named 'xformers'\n", "")


def test_torchaudio_runs_without_its_library(tmp_path: Path) -> None:
    (tmp_path / "torchaudio").mkdir()
    (tmp_path / "torchaudio" / "__init__.py").write_text("from . import _extension, functional")
    (tmp_path / "torchaudio" / "_extension.py").write_text("raise OSError('libtorchaudio.so')")
    (tmp_path / "torchaudio" / "functional.py").write_text("import torch\nalign = torch.ops.torchaudio.forced_align")
    code = """
import sys, norch.compat as standin
standin.install()
import torch, torchaudio
args = torch.tensor([[1]]), torch.tensor([2]), torch.tensor([1])
print(torchaudio.functional.align(torch.eye(2)[None], *args, 0)[0].tolist(), torchaudio._extension.__name__)
standin.uninstall()
print([name for name in sys.modules if name.startswith("torchaudio")])
"""
    done = run(code, folder=tmp_path)
    assert (done.stdout, done.stderr) == ("[[0, 1]] norch.compat.audio_ops\n[]\n", "")


def test_install_refuses_beside_pytorch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    done = run("import torch, norch.compat.standin as s; s.install()", folder=tmp_path)
    assert "torch is already loaded from" in done.stderr
    assert "before anything imports it" in done.stderr


SCRIPT = """
import sys
import helper
import torch
print(torch.ones(2).sum().item(), sys.argv[1:], __name__, helper.torch is torch)
torch.fill_of_nothing
"""


def test_run_as_torch(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("import torch")
    command = ["-m", "norch", "run", "--as-torch", "--report", str(tmp_path / "script.py"), "--lr", "3"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == "2.0 ['--lr', '3'] __main__ True\n"
    assert "has no attribute 'fill_of_nothing'" in done.stderr
    assert done.stderr.endswith("norch lacks of what was asked for:\ntorch.fill_of_nothing\n") or (
        "torch.fill_of_nothing" in done.stderr.splitlines()
    )


def test_modules_run_as_torch_too(tmp_path: Path) -> None:
    """As `python -m`: a program's tests run on norch by `norch run --as-torch -m pytest`."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__main__.py").write_text(
        "import sys, torch; print(__name__, __package__, sys.argv[1:], 'norch' in torch.__version__)"
    )
    command = [sys.executable, "-m", "norch", "run", "--as-torch", "-m", "tools", "-m", "slow", "--lr=3"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    assert done.stdout == "__main__ tools ['-m', 'slow', '--lr=3'] True\n"


def test_children_of_a_script_run_as_torch_too(tmp_path: Path) -> None:
    """Launchers start the script again by itself, in as many processes as there are devices."""
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.found_as_well = True")
    (tmp_path / "child.py").write_text(
        "import sys; early = 'norch' in sys.modules; import torch; print(early, torch.__version__, found_as_well)"
    )
    (tmp_path / "script.py").write_text(
        "import subprocess, sys, torch; print(subprocess.check_output([sys.executable, 'child.py'], text=True))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "norch", "run", "--as-torch", "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    assert done.stdout.split() == ["False", f"2.13.0+norch.{norch.__version__}", "True"]


USES = """
import torch, os.path
import torch.monitor as monitor
import torch.linalg
from torch import ones as one, Nothing
from torch.onnx import export
x = one(3).whatever()
y = torch.linalg.norm(x) + torch.special.wrong(torch.ones(1))
torch.manual_seed(1).later
torch.cuda.set_device(torch.cuda.is_bf16_supported())
os.path.join("a")
def f(torch_): return torch_.neither
"""


def test_check_says_what_there_is_instead(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "graph.py"
    file.write_text(
        "import torch, torch.sparse\nfrom torch.func import vmap, jvp\n"
        "x = torch.sparse.FloatTensor(torch.sparse_coo_tensor, torch.spmm, torch.sparse.mm, torch.sparse_csr)\n"
        "y = torch.sparse_bsc_tensor(torch.fft.fft(x), torch.sparse.spdiags)\n"
    )
    assert main(["check", str(file)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{file}:4: norch lacks torch.sparse.spdiags: use norch.diag(diagonal, k).to_sparse()",
        f"{file}:4: norch lacks torch.sparse_bsc_tensor: {check._COO}",
    ]
    assert not [name for name in check._INSTEAD if name != "vision.models" and check.lacks(f"torch.{name}") is None]


def test_check_names_what_is_missing(tmp_path: Path, capsys: Any) -> None:
    assert [use.name for use in check.uses("import a, torch.nn as n; n.functional.relu(n.x)")] == [
        "torch.nn", "torch.nn.functional.relu", "torch.nn.x",
    ]  # fmt: skip
    file = tmp_path / "uses.py"
    file.write_text(USES)
    (tmp_path / "broken.py").write_text("def")
    assert main(["check", str(file)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{file}:3: norch lacks torch.monitor",
        f"{file}:5: norch lacks torch.Nothing",
        f"{file}:6: norch lacks torch.onnx.export: norch.save(model.state_dict(), path) keeps a model, and norch.load "
        "reads it",
        f"{file}:8: norch lacks torch.special.wrong",
    ]
    file.write_text("import torch\ntorch.ones(1)")
    assert main(["check", str(file)]) == 0
    assert main(["check", str(tmp_path)]) == 2
    assert "broken.py" in capsys.readouterr().err


def test_complex_numbers_are_tensors_to_scripts_alone() -> None:
    code = """
import copy, pickle
import norch
from norch.compat import standin
pair = norch.complex(norch.ones(2), norch.zeros(2))
assert not isinstance(pair, norch.Tensor)
standin.install()
import torch
assert isinstance(pair, torch.Tensor) and torch.is_tensor(pair) and not torch._C._is_tracing()
assert str(type(torch.ones(1))) == "<class 'torch.Tensor'>"
assert pickle.loads(pickle.dumps(torch.ones(2))).tolist() == [1, 1]
assert (norch.ones(2) * pair + pair).tolist() == [2, 2]
assert copy.deepcopy(pair).tolist() == pickle.loads(pickle.dumps(pair)).tolist() == [1, 1]
standin.uninstall()
assert not isinstance(pair, norch.Tensor) and norch.Tensor.__module__.startswith("norch")
"""
    assert run(code).stderr == ""


def test_nodes_have_pytorchs_names(tmp_path):
    script = tmp_path / "names.py"
    script.write_text(
        """
import sys
import torch
x = torch.ones(2, requires_grad=True)
y = torch.cat([x * 2, x.view(1, 2)[0]])
print(y)
print(y.grad_fn.name(), y.grad_fn.next_functions[0][0].next_functions[0][0].name())
class Twice(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: x * 2)
    backward = staticmethod(lambda ctx, g: g * 2)
print(Twice.apply(x).grad_fn.name())
print(sys.getsizeof(torch.zeros(1000).untyped_storage()) >= 4000)
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "norch", "run", "--as-torch", str(script)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:4] == [
        "tensor([2., 2., 1., 1.], grad_fn=<CatBackward0>)",
        "CatBackward0 AccumulateGrad",
        "TwiceBackward",
        "True",
    ]
