"""norch's modules give what PyTorch's give in PyTorch's own samples of them: values, gradients, states, texts.

Run by `hatch run nightly:test`; it takes half a minute.
"""

from __future__ import annotations

import pytest
import torch
from beside_module_db import DTYPES, MODULES, failures

pytestmark = pytest.mark.filterwarnings("ignore")

GRADIENT_OF_CTC = "CTCLoss"  # PyTorch's is right only behind a log_softmax; norch's is checked numerically


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def dtypes_of(name: str) -> tuple[torch.dtype, ...]:
    # In bfloat16 a dozen layers of rounded sums differ by more than one does; and relus fall on the other side of 0.
    return DTYPES[:2] if name.startswith("Transformer") else DTYPES


@pytest.mark.parametrize(
    ("name", "dtype"), [(n, d) for n in MODULES for d in dtypes_of(n)], ids=lambda v: str(v).removeprefix("torch.")
)
def test_samples(name: str, dtype: torch.dtype) -> None:
    found = [line for line in failures(name, dtype) if name != GRADIENT_OF_CTC or "gradients: " not in line]
    assert not found, f"{len(found)} samples differ:\n" + "\n".join(line[:400] for line in found[:10])
