"""What optimisers take beside real leaves: complex numbers, results that retain gradients; hooks of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import norch
from norch import optim
from norch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad", "RMSprop", "NAdam", "LBFGS"])
def test_complex_numbers_are_stepped_on_by_their_parts(name: str) -> None:
    values, scale = np.array([1 + 2j, 3 - 1j]), np.array([1.0, 2.0])

    def trained(param: Any, loss: Any) -> Any:
        optimizer = getattr(optim, name)([param], lr=0.1)

        def closure() -> norch.Tensor:
            optimizer.zero_grad()
            found: norch.Tensor = loss(param)
            found.backward()
            return found

        for _ in range(4):
            optimizer.step(closure)
        return param

    z = norch.tensor(values).requires_grad_()
    parts = norch.tensor(np.stack([values.real, values.imag], -1), requires_grad=True)
    target, weights = norch.tensor([0.0, 1.0], dtype=norch.float64), norch.tensor(scale)
    found = trained(z, lambda z: ((z - 1j).abs() ** 2 * weights).sum())
    expected = trained(parts, lambda x: ((x - target) ** 2).sum(-1).mul(weights).sum())
    found = norch.view_as_real(found.detach())
    np.testing.assert_allclose(found.cpu().numpy(), expected.detach().cpu().numpy(), rtol=1e-6)


def test_a_result_that_retains_its_gradient_is_stepped_on() -> None:
    result = norch.ones(2, requires_grad=True) * 2
    with pytest.raises(ValueError, match="non-leaf"):
        optim.SGD([result], lr=0.1)
    result.retain_grad()
    optimizer = optim.SGD([result], lr=0.1)
    result.sum().backward()
    optimizer.step()
    np.testing.assert_allclose(result.detach().cpu().numpy(), [1.9, 1.9], rtol=1e-6)


def test_hooks_of_the_steps_of_all_optimizers() -> None:
    seen: list[Any] = []
    params = [norch.ones(2, requires_grad=True)]
    first, second = optim.SGD(params, lr=0.1), optim.Adam(params)
    with (
        register_optimizer_step_pre_hook(lambda o, args, kwargs: seen.append(("all", type(o).__name__))),
        register_optimizer_step_post_hook(lambda o, args, kwargs: seen.append("after all")),
    ):
        first.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
        first.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))
        first.step()
        second.step()
    first.step()
    assert seen == [("all", "SGD"), "before", "after", "after all", ("all", "Adam"), "after all", "before", "after"]


def test_a_state_may_have_entries_of_the_users() -> None:
    optimizer = optim.SGD([norch.ones(2, requires_grad=True)], lr=0.1)
    optimizer.state["note"] = 3  # type: ignore[assignment]
    assert optimizer.state_dict()["state"] == {"note": 3}
