"""docs/adding-ops.md, played on a copy of the tree: each op has all its names and is known to all that lists ops.

That its commands print what the page shows, the sample tests among them, is a test of test_docs.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import update  # noqa: E402

CHECK = """
import sys
from pathlib import Path
import numpy as np
import norch
from norch import Tensor, ops
from norch.backend import PRIMITIVES, UNARY, contract
from norch.scaffold import new_backend
from norch.testing.conformance.calls import calls, dtypes_of
from norch.testing.conformance.oracle import expected
from norch.testing.samples import SAMPLES

here = Path(sys.argv[1])
assert Path(norch.__file__).is_relative_to(here), norch.__file__

for name in ("cbrt", "squareplus", "every_nth", "rms"):
    assert getattr(norch, name) is getattr(ops, name) is SAMPLES[name].function
    assert name in dir(norch)
    assert name in norch.ops.__all__
    assert hasattr(Tensor, name) == (name != "squareplus")

x = norch.tensor([8.0, 27.0])
assert norch.cbrt_(x) is x and "cbrt_" in dir(norch)
assert x.tolist() == [2.0, 3.0]
assert UNARY.count("cbrt") == 1 and "cbrt" in PRIMITIVES and "cbrt" in contract.ELEMENTWISE
assert not {"squareplus", "every_nth", "rms"} & PRIMITIVES

# The kit.
assert dtypes_of("cbrt")[0] == "float32" and len(list(calls("cbrt", "float32"))) > 3
assert np.array_equal(expected("cbrt", [np.array([8.0])], {}, [np.empty(1, np.float32)])[0].values, [2.0])

# A backend as `norch new-backend` writes it.
sys.path.insert(0, str(new_backend("abacus", here / "new") / "src"))
from norch_abacus.backend import KERNELS
out = np.empty(1)
KERNELS["cbrt"](out, np.array([-27.0]))
assert out == np.cbrt(np.array([-27.0]))  # which is not -3 in every build of NumPy

# Views share memory; derivatives are those of the entries.
a = norch.arange(6.0)
assert a.every_nth(2)._version == 0 and a.every_nth(2).base is a
y = norch.tensor([8.0], requires_grad=True)
y.cbrt().backward()
assert abs(y.grad.item() - 1 / 12) < 1e-6
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree").resolve()
    reader = update.contributor(folder)
    page = (ROOT / "docs" / "adding-ops.md").read_text(encoding="utf-8")
    update.updated(page, lambda marker, text: text if marker.startswith("run") else reader.content(marker, text))
    return folder


def test_every_op_of_the_page_has_all_its_names(copy):
    path = os.pathsep.join([str(copy / "packages" / "norch-core" / "src"), *sys.path])
    # Where norch-cpu is installed, it has not been compiled with the page's kernels.
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "NORCH_BACKEND_CPU": "numpy"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CHECK, str(copy)],
        env=environment,
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "file", ["norch-cpu/csrc/common/elementary_ops.h", "norch-cuda/csrc/elementwise/functions.cuh"]
)
def test_native_kernels_are_among_the_steps(copy, file):
    changed, was = ((root / "packages" / file).read_text() for root in (copy, ROOT))
    assert changed != was
    assert "cbrt" in changed


def test_a_diff_that_no_longer_fits_is_refused():
    with pytest.raises(ValueError, match="0 places"):
        update.patched("a\nb\n", " a\n+c\n d\n")
