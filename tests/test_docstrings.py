"""Every public name says what it does; docstrings.py says what of that a machine can find."""

import sys
from pathlib import Path

import pytest

import norch

sys.path.insert(0, str(Path(__file__).parent))
import docstrings


@pytest.mark.parametrize("rule", docstrings.RULES, ids=lambda rule: rule.__name__)
def test_docstrings(rule):
    lacking = [f"{name}: {lacks}" for name, lacks in docstrings.findings(rule).items()]
    assert not lacking, f"{len(lacking)} (python tests/docstrings.py {rule.__name__}):\n" + "\n".join(lacking[:20])


def test_the_names_are_looked_at():
    found = {str(entry) for entry in docstrings.public()}
    assert len(found) > 2000
    assert found >= {
        "norch.exp", "norch.add_", "norch.Tensor.Tensor.backward", "norch.linalg.svd", "norch.fft.fft",
        "norch.nn.Linear", "norch.nn.Linear.forward", "norch.nn.functional.cross_entropy", "norch.optim.Adam",
        "norch.utils.data.DataLoader.state_dict", "norch.vision.models.resnet18", "norch.distributed.all_reduce",
        "norch.func.jacrev", "norch.amp.custom_fwd", "norch.sparse.SparseTensor.coalesce", "norch.capture",
        "norch_cuda.module.memory_stats",
    }  # fmt: skip


NOT_FOR_USERS = {
    "norch.version", "norch.plugin_ops", "norch.device_module", "norch.sparse.old_types", "norch.amp.autocast_mode",
    "norch.linalg.products", "norch.ops", "norch.ops.optimizer", "norch.tensor", "norch.testing.conformance",
    "norch.testing.samples", "norch.testing.samples.checks", "norch.distributed.spawning", "norch.vision",
    "norch.utils", "norch.ray", "norch.memory.snapshots", "norch.nn.modules",
    "norch.distributed.algorithms.ddp_comm_hooks.default_hooks",
}  # fmt: skip
"""Modules with an `__all__` whose names users find elsewhere, are no functions, or need a package that is not here."""


def test_every_list_of_public_names_is_looked_at():
    places = [Path(folder) for folder in norch.__path__]
    files = [(root, file) for root in places for file in root.rglob("*.py") if "\n__all__ = " in file.read_text()]
    modules = {".".join(["norch", *file.relative_to(root).with_suffix("").parts]) for root, file in files}
    modules = {name.removesuffix(".__init__") for name in modules}
    assert modules - NOT_FOR_USERS - {"norch"} <= set(docstrings.NAMESPACES)


# --- That the rules find what they are for --------------------------------------------------------------------------


def silent(input: norch.Tensor, other: float) -> norch.Tensor: ...


def vague(input: norch.Tensor, factor: float) -> norch.Tensor:
    """The input, changed."""
    if factor < 0:
        raise ValueError("negative")
    return input


def good(input: norch.Tensor, factor: float) -> norch.Tensor:
    """input * factor, elementwise. Raises ValueError for a negative factor."""
    return vague(input, factor)


def referring(input: norch.Tensor, exponent: float) -> norch.Tensor:
    """As `pow`, but slower."""
    return input**exponent


def anything(*args, **kwargs):
    """Whatever that is, it takes them."""


@pytest.mark.parametrize(
    ("function", "rules"),
    [
        (silent, {"docstring", "shape"}),
        (vague, {"parameters", "shape", "raises"}),
        (good, set()),
        (referring, set()),
        (anything, set()),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_rule_finds_what_is_missing(function, rules):
    entry = docstrings.Entry("norch", function.__name__, function)
    assert {rule.__name__ for rule in docstrings.RULES if rule(entry)} == rules


def test_a_signature_that_says_nothing_is_found():
    def call(*args, **kwargs):
        """Runs what was made of a table."""

    assert docstrings.signature(docstrings.Entry("norch", "call", call))


def test_an_algorithm_without_a_source_is_found():
    def selu(input):
        """The activation."""

    assert docstrings.source(docstrings.Entry("norch.nn.functional", "selu", selu))
    selu.__doc__ = "The activation (Klambauer et al., 2017)."
    assert not docstrings.source(docstrings.Entry("norch.nn.functional", "selu", selu))


def test_namespaces_exist():
    for name in docstrings.NAMESPACES:
        assert name in docstrings.places() or name == "norch_cpu.module"
