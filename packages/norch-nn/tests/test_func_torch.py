"""norch.func beside torch.func: the programs of its tutorials."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import norch

torch = pytest.importorskip("torch")


def programs(lib: Any) -> dict[str, Any]:
    """Results by name, with PyTorch or norch as `lib`."""
    func: Any = import_module(f"{lib.__name__}.func")
    nn, F = lib.nn, lib.nn.functional
    draw = np.random.RandomState(0)
    out = {}

    def data(*shape: int) -> Any:
        return lib.tensor(draw.randn(*shape).astype("f4"))

    def filled(model: Any) -> Any:
        with lib.no_grad():
            for p in model.parameters():
                p.copy_(data(*p.shape) * 0.3)
        return model

    net = filled(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5)))
    weights = {name: p.detach() for name, p in net.named_parameters()}
    x, y = data(6, 1, 8, 8), lib.tensor(draw.randint(0, 5, 6))

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return F.cross_entropy(func.functional_call(net, weights, (x.unsqueeze(0),)), y.unsqueeze(0))

    for chunk in (None, 4):
        found = lib.vmap(func.grad(loss), (None, 0, 0), chunk_size=chunk)(weights, x, y)
        out.update({f"sample {chunk} {name}": g for name, g in found.items()})

    models = [filled(nn.Linear(3, 2)) for _ in range(3)]
    stacked, buffers = func.stack_module_state(models)
    mapped = lib.vmap(lambda p, b, x: func.functional_call(models[0], (p, b), (x,)), (0, 0, None))
    out["ensemble"] = mapped(stacked, buffers, data(4, 3))

    learner = filled(nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)))
    start = dict(learner.named_parameters())

    def square(p: Any, x: Any, y: Any) -> Any:
        return ((func.functional_call(learner, p, (x,)) - y) ** 2).mean()

    def task(x: Any, query: Any) -> Any:
        slope = func.grad(square)(start, x, x.sin())
        return square({name: p - 0.1 * slope[name] for name, p in start.items()}, query, query.sin())

    total = lib.vmap(task)(data(5, 10, 1), data(5, 10, 1)).mean()
    total.backward()
    out.update({"maml": total, **{f"maml {name}": p.grad for name, p in start.items()}})

    def f(z: Any) -> Any:
        return (z.sin() * z**2).sum()

    z, v = data(6), data(6)
    out["product"] = func.vjp(func.grad(f), z)[1](v)[0]
    out["forward product"] = func.jvp(func.grad(f), (z,), (v,))[1]
    out["hessian"] = func.hessian(f)(z)
    out["hessians"] = lib.vmap(func.hessian(f))(data(3, 6))
    out["hessian of map"] = func.hessian(lambda a: lib.vmap(f)(a).sum())(data(3, 2))
    out["unit vectors"] = lib.vmap(func.vjp(lambda a: a.sin() * a.sum(), z)[1])(lib.eye(6))[0]
    out["jacfwd"] = func.jacfwd(lambda a, b: (a * b, b.sum()), argnums=(0, 1))(z, v)[0][1]
    slope, (value, aux) = func.grad_and_value(lambda a, b: ((a * b).sum(), a + b), (0, 1), has_aux=True)(z, v)
    out.update({"slope": slope[1], "value": value, "aux": aux})

    plain = {name: p.detach() for name, p in start.items()}
    rows = lib.vmap(func.jacrev(lambda p, x: func.functional_call(learner, p, (x,))), (None, 0))(plain, data(4, 1))
    out["tangent kernel"] = sum(lib.einsum("naf,mbf->nmab", j.flatten(2), j.flatten(2)) for j in rows.values())
    return {name: value.detach().cpu().numpy() for name, value in out.items()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_programs_give_the_same() -> None:
    ours, theirs = programs(norch), programs(torch)
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        np.testing.assert_allclose(ours[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
