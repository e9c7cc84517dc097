"""Ordinary PyTorch scripts, run by norch with only their imports changed, print what PyTorch prints.

Each of `scripts/` is such a script, and beside it lies what PyTorch printed; where PyTorch is installed it is asked
again. Random numbers differ between the two, so the scripts get two functions: `fill(model)` sets parameters and
`noise(*shape)` draws a normal tensor, both from NumPy.

    python test_scripts.py      # asks PyTorch and writes what it prints
"""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parent / "scripts"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py"))
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")


def for_norch(source):
    """The script with its imports changed, and nothing else."""
    source = re.sub(r"^import torch$", "import norch as torch", source, flags=re.M)
    source = re.sub(r"^import torch\.", "import norch.", source, flags=re.M)
    return re.sub(r"^from torch(?=[ .])", "from norch", source, flags=re.M)


def printed(name, library, source):
    """What a script prints."""
    draw = np.random.default_rng(0)

    def noise(*shape):
        return library.tensor(draw.standard_normal(shape).astype(np.float32))

    def fill(model, seed=0):
        values = np.random.default_rng(seed)
        with library.no_grad():
            for p in model.parameters():
                shape = tuple(p.shape)
                bound = 1 / max(1, np.prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0.2
                p.copy_(library.tensor(values.uniform(-bound, bound, shape)))

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, f"{name}.py", "exec"), {"__name__": "__main__", "noise": noise, "fill": fill})
    return out.getvalue()


def assert_same(got, want):
    """The same words, and numbers as near as 32 bits bring them."""
    assert NUMBER.sub("#", got) == NUMBER.sub("#", want)
    numbers = [[float(n) for n in NUMBER.findall(text)] for text in (got, want)]
    np.testing.assert_allclose(*numbers, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_script(name, monkeypatch):
    import norch

    monkeypatch.setenv("NORCH_CPU_FALLBACK", "1")  # for linalg, which the CPU has alone

    source = (SCRIPTS / f"{name}.py").read_text()
    got = printed(name, norch, for_norch(source))
    assert_same(got, (SCRIPTS / f"{name}.txt").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_pytorch_prints_what_is_stored(name):
    torch = pytest.importorskip("torch")
    assert_same(printed(name, torch, (SCRIPTS / f"{name}.py").read_text()), (SCRIPTS / f"{name}.txt").read_text())


if __name__ == "__main__":
    import torch

    for name in NAMES:
        (SCRIPTS / f"{name}.txt").write_text(printed(name, torch, (SCRIPTS / f"{name}.py").read_text()))
