"""norch gives what PyTorch gives in PyTorch's own samples of its ops: values, dtypes, shapes, gradients, errors.

Run by `hatch run nightly:test`; it takes a few minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from beside_op_db import DTYPES, OPS, errors_missed, failures, is_lacking
from differences import DIFFERENCES, LACKING, name_of

pytestmark = pytest.mark.filterwarnings("ignore")

COMPARED = {name: op for name, op in OPS.items() if not is_lacking(op)}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def check(name: str, lines: Iterable[str], record_property: Any) -> None:
    known: Counter[str] = Counter()
    unknown = []
    for line in lines:
        difference = name_of(name, line)
        if difference is None:
            unknown.append(line)
        else:
            known[difference] += 1
    for difference, count in known.items():
        record_property(difference, count)
    assert not unknown, f"{len(unknown)} samples differ:\n" + "\n".join(line[:400] for line in unknown[:10])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, d) for name, op in COMPARED.items() for d in DTYPES if d in op.supported_dtypes("cpu")],
    ids=lambda v: str(v).removeprefix("torch."),
)
def test_samples(name: str, dtype: torch.dtype, record_property: Any) -> None:
    check(name, failures(COMPARED[name], dtype), record_property)


@pytest.mark.parametrize("name", [name for name, op in COMPARED.items() if op.error_inputs_func is not None])
def test_wrong_calls_raise(name: str, record_property: Any) -> None:
    check(name, errors_missed(COMPARED[name]), record_property)


def test_what_norch_lacks_is_listed() -> None:
    listed = [name for names in LACKING.values() for name in names.split()]
    assert len(listed) == len(set(listed))
    assert set(listed) == {op.name for op in OPS.values() if is_lacking(op)}


def test_differences_have_names() -> None:
    assert len({d.name for d in DIFFERENCES}) == len(DIFFERENCES)
