"""Mixed precision: `GradScaler`, which works as PyTorch's, and `autocast`, which norch does not have.

norch never converts dtypes behind a user's back. A model in 16 bits is one that was converted (`model.half()`,
`model.bfloat16()`); float32 products on a GPU are made faster by `norch.set_float32_matmul_precision`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .errors import AutogradError
from .ops import isfinite, stack
from .submodules import late_submodules

__path__: list[str] = []  # PyTorch has a package here: see norch.compat.paths
__getattr__ = late_submodules(__name__)

if TYPE_CHECKING:
    from .tensor import Tensor


class autocast:
    """Accepted with `enabled=False`, as a context manager and as a decorator; it then does nothing.

    Otherwise raises NotImplementedError: norch has no automatic mixed precision.
    """

    def __init__(
        self, device_type: Any = "cuda", dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if enabled:
            raise NotImplementedError(
                "autocast(): norch has no automatic mixed precision; convert model and inputs (model.bfloat16(), "
                "x.bfloat16()), or set norch.set_float32_matmul_precision('high'), and pass enabled=False here"
            )

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function


def is_autocast_available(device_type: str) -> bool:
    """False: see `autocast`."""
    return False


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """False: see `autocast`."""
    return False


def custom_fwd(fwd: Any = None, *, device_type: str | None = None, cast_inputs: Any = None) -> Any:
    """For `forward` of an autograd Function under autocast, which there is none of: the function itself."""
    return fwd if fwd is not None else lambda function: function


def custom_bwd(bwd: Any = None, *, device_type: str | None = None) -> Any:
    """For `backward` of an autograd Function under autocast, which there is none of: the function itself."""
    return bwd if bwd is not None else lambda function: function


_READY, _UNSCALED, _STEPPED = range(3)
_STATE = {key: f"_{key}" for key in ("scale", "growth_factor", "backoff_factor", "growth_interval")}
_STATE["_growth_tracker"] = "_growth_tracker"


class GradScaler:
    """Multiplies the loss, so that float16 gradients do not vanish, and takes the factor out again before the step.

    Where a gradient is infinite or NaN the step is left out and the factor falls; after `growth_interval` good steps it
    grows. Parameters, methods and state as PyTorch's; `device` is not needed. Each step waits for the device once.
    """

    def __init__(
        self,
        device: Any = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if not isinstance(device, str) and isinstance(device, float | int):  # as in PyTorch's older form
            device, init_scale = "cuda", float(device)
        if growth_factor <= 1 or not 0 < backoff_factor < 1:
            raise ValueError(
                f"GradScaler(): needs growth_factor > 1 and 0 < backoff_factor < 1, got {growth_factor} and "
                f"{backoff_factor}"
            )
        self._scale = float(init_scale)
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval, self._growth_tracker = growth_interval, 0
        self._enabled = bool(enabled)
        self._stages: dict[int, tuple[int, bool]] = {}  # by id of the optimiser: the stage, and whether all was finite

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def scale(self, outputs: Any) -> Any:
        """A tensor, or a nested sequence of them, multiplied by the factor."""
        if not self._enabled:
            return outputs
        if hasattr(outputs, "spec"):
            return outputs * self._scale
        return type(outputs)(self.scale(x) for x in outputs)

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of the optimiser's parameters by the factor: before they are clipped, for one.

        Raises AutogradError the second time since `update`, ValueError for float16 parameters, whose gradients cannot
        hold what they are without the factor.
        """
        if not self._enabled:
            return
        if id(optimizer) in self._stages:
            raise AutogradError("GradScaler.unscale_(): already called for this optimiser since the last update()")
        finite = []
        for grad in _gradients(optimizer):
            values = grad.detach()
            values.mul_(1.0 / self._scale)
            finite.append(isfinite(values).all())
        if not finite:
            raise AutogradError("GradScaler.unscale_(): none of the optimiser's parameters has a gradient")
        first = finite[0].device
        good = bool(stack([f.to(first) for f in finite]).all().item())
        self._stages[id(optimizer)] = (_UNSCALED, good)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args)` after `unscale_`, unless a gradient was not finite. Closures are not supported.

        Raises AutogradError where it was called already since the last `update`.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or args:
            raise NotImplementedError("GradScaler.step(): closures are not supported")
        stage = self._stages.get(id(optimizer), (_READY, True))[0]
        if stage == _STEPPED:
            raise AutogradError("GradScaler.step(): already called for this optimiser since the last update()")
        if stage == _READY:
            self.unscale_(optimizer)
        good = self._stages[id(optimizer)][1]
        self._stages[id(optimizer)] = (_STEPPED, good)
        return optimizer.step() if good else None

    def update(self, new_scale: Any = None) -> None:
        """Adapts the factor to what the steps since the last call saw, or sets it. AutogradError without a step."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._stages:
            raise AutogradError("GradScaler.update(): no optimiser was stepped or unscaled since the last call")
        elif not all(good for _, good in self._stages.values()):
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale *= self._growth_factor
                self._growth_tracker = 0
        self._stages.clear()

    def get_scale(self) -> float:
        """The factor; 1 where not enabled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """What the factor is multiplied by when it grows."""
        return self._growth_factor

    def get_backoff_factor(self) -> float:
        """What the factor is multiplied by when a gradient was not finite."""
        return self._backoff_factor

    def get_growth_interval(self) -> int:
        """After how many good steps in a row the factor grows."""
        return self._growth_interval

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on; empty where not enabled."""
        if not self._enabled:
            return {}
        return {key: getattr(self, attribute) for key, attribute in _STATE.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes back to where `state_dict` was called. Raises ValueError for an empty one."""
        if not self._enabled:
            return
        if not state_dict:
            raise ValueError("GradScaler.load_state_dict(): the state is empty: it was saved from a disabled scaler")
        for key, attribute in _STATE.items():
            setattr(self, attribute, state_dict[key])
        self._scale = float(self._scale)


def _gradients(optimizer: Any) -> Iterable[Tensor]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            if grad.dtype.itemsize == 2 and grad.dtype.name == "float16":
                raise ValueError(
                    "GradScaler.unscale_(): a parameter is float16; its gradient would vanish again without the "
                    "factor. Keep parameters in float32 (a float16 copy of them computes)"
                )
            yield grad


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available", "is_autocast_enabled"]
