"""norch-nn uses norch-core by its public names alone. What the parts of norch-nn may import, .importlinter says."""

import ast
from pathlib import Path
from types import ModuleType

import pytest

import norch
from norch import nn

pytestmark = pytest.mark.usefixtures("on_host")

OWN = ("fx", "nn", "optim", "ray", "utils", "vision")
PUBLIC_MODULES = tuple(
    "autograd backends compiler func library linalg overrides random serialization source_lines switches".split()
)
PUBLIC_NONETHELESS = ("_assert",)
"""What begins as internal names do since it does in PyTorch."""
INTERNAL_ATTRIBUTES = {"_grad", "spec", "buffer", "node"}
"""What a Tensor has for norch-core's own use."""


def violations(source):
    """The lines of `source` that reach behind the public names of norch-core."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("norch.")]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module.split(".")[0] == "norch":
            names = [node.module] if "." in node.module else [f"norch.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "norch":
            names = [f"norch.{node.attr}"]
        else:
            names = []
            if isinstance(node, ast.Attribute) and node.attr in INTERNAL_ATTRIBUTES:
                found.append((node.lineno, f".{node.attr}"))
        found += [(node.lineno, name) for name in names if not is_public(name)]
    return found


def is_public(name):
    first, *rest = name.split(".")[1:]
    if first in (*OWN, "distributed"):
        return True
    value = getattr(norch, first, None)
    return (
        (first in PUBLIC_NONETHELESS or not first.startswith("_"))
        and not rest
        and value is not None
        and (not isinstance(value, ModuleType) or first in PUBLIC_MODULES)
    )


@pytest.mark.parametrize("package", OWN)
def test_norch_core_is_used_by_public_names(package):
    root = Path(nn.__file__).parents[1] / package
    files = sorted(root.rglob("*.py"))
    assert files
    found = {str(f.relative_to(root)): violations(f.read_text()) for f in files}
    if package == "fx":  # whose proxies have a node
        found = {file: [each for each in lines if each[1] != ".node"] for file, lines in found.items()}
    assert {file: lines for file, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import norch.spec",
        "from norch.ops import exp",
        "from norch.autograd.engine import run",
        "from norch import ops",
        "norch.tensor_",
        "norch._numpy",
        "param._grad",
        "x.spec.shape",
    ],
)
def test_what_is_not_public_is_found(source):
    assert violations(source)


def test_what_is_public_is_not_found():
    source = (
        "import norch\nfrom norch import relu\nfrom norch.autograd import Function\nnorch.random.fork_rng()\nx.grad"
    )
    assert not violations(source)
