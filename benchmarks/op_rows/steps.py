"""Steps of optimisers, of 100 parameters of 256 x 256, and gradients clipped."""

from __future__ import annotations

from typing import Any

from .inputs import Op

NAMES = "SGD Adam AdamW RMSprop Adagrad Adadelta NAdam RAdam Adamax ASGD Rprop Adafactor".split()


def rows(op: Op, lib: Any, device: str) -> None:
    def parameters(count: int) -> list[Any]:
        made = [lib.randn(256, 256, device=device).requires_grad_() for _ in range(count)]
        for parameter in made:
            parameter.grad = lib.randn(256, 256, device=device)
        return made

    def optimizer(name: str, **options: Any) -> Any:
        return getattr(lib.optim, name)(parameters(100), lr=1e-4, **options)

    for name in NAMES:
        op(f"step of {name}", lambda o: o.step(), lambda name=name: optimizer(name), grad=False)
    options = {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}
    op("step of SGD, nesterov", lambda o: o.step(), lambda: optimizer("SGD", **options), grad=False)
    op("step of AdamW, amsgrad", lambda o: o.step(), lambda: optimizer("AdamW", amsgrad=True), grad=False)
    op("clip_grad_norm_ of 200", lambda p: lib.nn.utils.clip_grad_norm_(p, 1.0), lambda: parameters(200), grad=False)
