"""norch's optimisers take the steps that PyTorch's take in PyTorch's own samples of their options.

Run by `hatch run nightly:test`; it takes some seconds.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from beside_op_db import difference, to_norch
from torch.testing._internal.common_optimizers import optim_db

import norch

pytestmark = pytest.mark.filterwarnings("ignore")

CASES = [
    pytest.param(info, sample, dtype, id=f"{info.optim_cls.__name__}-{sample.desc}-{dtype}".replace("torch.", ""))
    for info in optim_db
    if not info.only_supports_sparse_grads
    for sample in info.optim_inputs_func("cpu")
    for dtype in (torch.float64, torch.float32)
    if dtype is torch.float64 or info.optim_cls is not torch.optim.LBFGS  # whose iterations multiply rounding errors
]
ROUNDED = {"Muon"}  # its steps are made of products of bfloat16
NUMBERS = {"step", "eta", "mu", "mu_product"}  # of states: tensors in PyTorch


def trained(library: Any, convert: Any, optimizer: Any, options: dict[str, Any], dtype: torch.dtype, steps: int) -> Any:
    """The parameters after some steps, the optimiser's state and the losses."""
    torch.manual_seed(0)
    first, second, x = (torch.randn(shape, dtype=dtype) for shape in ((3, 4), (4, 6), (5, 3)))
    parameters = [library.nn.Parameter(convert(w.clone())) for w in (first, second)]
    made = optimizer(parameters, **{k: convert(v) if isinstance(v, torch.Tensor) else v for k, v in options.items()})
    inputs = convert(x)

    def closure() -> Any:
        made.zero_grad()
        loss = ((inputs @ parameters[0]).tanh() @ parameters[1]).square().mean()
        loss.backward()
        return loss

    losses = [float(made.step(closure).detach()) for _ in range(steps)]
    return [p.detach() for p in parameters], made.state_dict(), losses


@pytest.mark.parametrize(("info", "sample", "dtype"), CASES)
def test_samples(info: Any, sample: Any, dtype: torch.dtype) -> None:
    name = info.optim_cls.__name__
    steps = 1 if name == "LBFGS" else 7
    theirs = trained(torch, lambda x: x, info.optim_cls, sample.kwargs, dtype, steps)
    ours = trained(norch, to_norch, getattr(norch.optim, name), sample.kwargs, dtype, steps)
    compared = torch.bfloat16 if name in ROUNDED else dtype
    assert difference(theirs[0], ours[0], compared) is None
    assert difference(theirs[2], ours[2], compared) is None
    assert [sorted(group) for group in theirs[1]["param_groups"]] == [sorted(g) for g in ours[1]["param_groups"]]
    if name == "LBFGS":  # whose memory of past steps is laid out otherwise
        return
    for i, state in theirs[1]["state"].items():
        own = ours[1]["state"][i]
        assert sorted(state) == sorted(own)
        for key, value in state.items():
            if key in NUMBERS:
                assert float(own[key]) == pytest.approx(float(value), rel=1e-6)
            else:
                assert difference(value, own[key], compared) is None, key
