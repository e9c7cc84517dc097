"""Steps of optimisers against their formulas in float64."""

import pytest

import norch
from norch.testing.steps import STEPS, check_step


@pytest.mark.parametrize("name", STEPS)
def test_a_step(name):
    check_step(STEPS[name], "webgpu", dtypes=(norch.float32, norch.bfloat16))


def test_a_step_is_one_kernel_a_parameter():
    params = [norch.ones(n, device="webgpu") for n in (3, 5, 3)]
    states, grads = [[norch.ones_like(p) for p in params] for _ in range(2)], [norch.ones_like(p) for p in params]
    norch.adam_step_(params, grads, *states, step=1)
    norch.webgpu.synchronize()
    encoder = norch.device("webgpu").backend.run.devices[0].encoder
    norch.adam_step_(params, grads, *states, step=2)
    assert encoder.count == 3
