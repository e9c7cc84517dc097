"""GradScaler: the loss is multiplied by a factor, so that float16 gradients do not vanish."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from .. import switches
from ..autograd import no_grad
from ..backend import registry
from ..dtype import float16, float32, float64
from ..errors import AutogradError
from ..ops import full, isfinite, scale_, stack, total_norm

if TYPE_CHECKING:
    from ..device import Device
    from ..tensor import Tensor


class OptState(IntEnum):
    """What was done since the last `update` with the gradients of an optimiser."""

    READY, UNSCALED, STEPPED = 0, 1, 2


_READY, _UNSCALED, _STEPPED = OptState
_KEYS = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")


class GradScaler(switches.Replayed):
    """Multiplies the loss, so that float16 gradients do not vanish, and takes the factor out again before the step.

    Where a gradient is infinite or NaN the step is left out and the factor falls; after `growth_interval` good steps it
    grows: times `backoff_factor` and `growth_factor`, from `init_scale` on. With `enabled=False` it does nothing.
    Raises ValueError unless growth_factor > 1 and 0 < backoff_factor < 1. Parameters, methods and state as PyTorch's.
    For "cuda" without a GPU it warns and does nothing. Each step waits for the device once.
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
        self._device = str(device)
        if enabled and self._device == "cuda" and not registry.is_usable("cuda"):
            warnings.warn(
                "GradScaler: CUDA is not available; it is turned off (on another device give it, as GradScaler('cpu'))",
                stacklevel=2,
            )
            enabled = False
        if enabled and (growth_factor <= 1 or not 0 < backoff_factor < 1):
            raise ValueError(
                f"GradScaler(): needs growth_factor > 1 and 0 < backoff_factor < 1, got {growth_factor} and "
                f"{backoff_factor}"
            )
        self._scale = float(init_scale)
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval, self._growth_tracker = growth_interval, 0
        self._enabled = bool(enabled)
        self._scaled = False
        self._factors: dict[tuple[Any, Any], Tensor] = {}
        """The factor as a tensor, by device and dtype: recorded steps read it when they run."""
        self._stages: dict[int, tuple[int, bool | None, Any]] = {}
        """By id of the optimiser: the stage, whether all was finite (None where it has no gradient), and it itself,
        so that no other gets its id."""

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def scale(self, outputs: Any) -> Any:
        """`outputs`, a tensor, or a nested sequence of them, multiplied by the factor. ValueError for anything else.

        A 0-d 16-bit loss becomes float32, as a product with PyTorch's 0-d factor does.
        """
        if not self._enabled:
            return outputs
        self._scaled = True
        if hasattr(outputs, "spec"):
            short = not outputs.spec.ndim and outputs.spec.dtype.itemsize == 2
            return self._scaled_up(outputs.float() if short else outputs)
        if isinstance(outputs, str | Mapping) or not isinstance(outputs, Iterable):
            raise ValueError(f"GradScaler.scale(): needs a Tensor or an iterable of them, got {type(outputs).__name__}")
        scaled = map(self.scale, outputs)
        return type(outputs)(scaled) if isinstance(outputs, list | tuple) else scaled

    def _scaled_up(self, loss: Tensor) -> Tensor:
        device, dtype = loss.spec.device, loss.spec.dtype
        wide = float32 if dtype.itemsize == 2 else dtype
        factor = self._factors.get((device, wide))
        if factor is None:
            factor = self._factors[device, wide] = full((), self._scale, dtype=wide, device=device)
        if switches.noting is None:
            return loss * self._scale
        return loss * factor if wide is dtype else (loss.float() * factor).to(dtype)

    def _set_scale(self, scale: float) -> None:
        if scale != self._scale:
            self._scale = scale
            with no_grad():
                for factor in self._factors.values():
                    factor.fill_(scale)

    @switches.replayed
    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of the optimiser's parameters by the factor: before they are clipped, for one.

        Raises AutogradError the second time since `update`, after `step`, and before any `scale`; ValueError for
        float16 parameters, whose gradients cannot hold what they are without the factor.
        """
        if not self._enabled:
            return
        self._check_scaled("unscale_")
        stage = self._stages.get(id(optimizer), (_READY,))[0]
        if stage == _UNSCALED:
            raise AutogradError(
                "GradScaler.unscale_(): it has already been called on this optimizer since the last update()"
            )
        if stage == _STEPPED:
            raise AutogradError("GradScaler.unscale_(): it is being called after step()")
        spec = next((grad.spec for grad in _gradients(optimizer, allow_fp16=True)), None)
        infinite = None
        with no_grad():
            if spec is not None:
                wide = float64 if spec.dtype is float64 else float32
                inverse = full((), 1.0 / self._scale, dtype=wide, device=spec.device)
                zero = full((), 0.0, dtype=float32, device=spec.device)
                found = [f.to(spec.device) for f in self._unscale_grads_(optimizer, inverse, zero, False).values()]
                infinite = stack(found).sum() if len(found) > 1 else found[0] if found else None
            # A rank without gradients has a part in this too.
            all_finite = self._everywhere(optimizer, None if infinite is None else infinite == 0)
        good = None if all_finite is None else bool(all_finite.item())
        self._stages[id(optimizer)] = (_UNSCALED, good, optimizer)

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[Device, Tensor]:
        """Multiplies the gradients by `inv_scale`, a 0-d tensor; returns by device a tensor of one element, which is
        positive where `found_inf` was or a gradient is not finite then.

        ValueError for float16 gradients, unless `allow_fp16`. PyTorch's name, by which programs override it.
        """
        grads = list(_gradients(optimizer, allow_fp16))
        if not grads:
            return {}
        scale_(grads, inv_scale)
        place = grads[0].spec.device
        if not isfinite(total_norm(grads)).item():
            # So large a norm may be infinite where no gradient is.
            found_inf = (
                found_inf.to(place) + stack([isfinite(grad).all().logical_not().to(place) for grad in grads]).any()
            )
        return {place: found_inf.to(place)}

    def _everywhere(self, optimizer: Any, finite: Tensor | None) -> Tensor | None:
        """Whether the gradients are finite on all ranks that share the parameters out, from whether they are here."""
        if finite is not None:
            for shard in _shards(optimizer):
                finite = shard.all_reduce(finite, "min")
        return finite

    @switches.replayed
    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args)` after `unscale_`, unless a gradient was not finite.

        Raises AutogradError where it was called already since the last `update`, and where no parameter has a gradient;
        NotImplementedError for a closure.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise NotImplementedError("GradScaler.step(): closures are not supported while it is enabled")
        self._check_scaled("step")
        stage = self._stages.get(id(optimizer), (_READY,))[0]
        if stage == _STEPPED:
            raise AutogradError("GradScaler.step(): it has already been called since the last update()")
        if stage == _READY:
            self.unscale_(optimizer)
        good = self._stages[id(optimizer)][1]
        if good is None:
            raise AutogradError("GradScaler.step(): no parameter of this optimizer has a gradient")
        found = optimizer.step(*args, **kwargs) if good else None
        self._stages[id(optimizer)] = (_STEPPED, good, optimizer)
        return found

    @switches.replayed
    def update(self, new_scale: Any = None) -> None:
        """Adapts the factor to what the steps since the last call saw, or sets it to `new_scale`: a number, or a tensor
        of one.

        Raises AutogradError where no gradients were looked at since the last call.
        """
        if not self._enabled:
            return
        self._check_scaled("update")
        seen = [good for _, good, _ in self._stages.values() if good is not None]
        if new_scale is not None:
            self._set_scale(float(new_scale))
        elif not seen:
            raise AutogradError("GradScaler.update(): no gradients were looked at since the last update()")
        elif not all(seen):
            self._set_scale(self._scale * self._backoff_factor)
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._set_scale(self._scale * self._growth_factor)
                self._growth_tracker = 0
        self._stages.clear()

    def _check_scaled(self, name: str) -> None:
        if not self._scaled:
            raise AutogradError(f"GradScaler.{name}(): scale(loss) was not called before, so that nothing is scaled")

    def get_scale(self) -> float:
        """The factor; 1 where not enabled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """What the factor is multiplied by when it grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets to `new_factor` what `get_growth_factor` gives."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the factor is multiplied by when a gradient was not finite."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets to `new_factor` what `get_backoff_factor` gives."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many good steps in a row the factor grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets to `new_interval` what `get_growth_interval` gives."""
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on, under PyTorch's keys; empty where not enabled."""
        if not self._enabled:
            return {}
        return {key: getattr(self, f"_{key.lstrip('_')}") for key in _KEYS}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes back to where `state_dict` was called. Raises AutogradError for an empty one."""
        if not self._enabled:
            return
        if not state_dict:
            raise AutogradError("GradScaler.load_state_dict(): the state is empty: it was saved from a disabled scaler")
        for key in _KEYS[1:]:
            setattr(self, f"_{key.lstrip('_')}", state_dict[key])
        self._set_scale(float(state_dict["scale"]))

    def __getstate__(self) -> dict[str, Any]:
        if self._stages:
            raise AutogradError("GradScaler: it can be pickled at the beginning of an iteration, or after update()")
        return self.__dict__ | {"_factors": {}}


def _gradients(optimizer: Any, allow_fp16: bool) -> Iterable[Tensor]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is None:
                continue
            if grad.dtype is float16 and not allow_fp16:
                raise ValueError(
                    "GradScaler.unscale_(): a gradient is float16; it would vanish again without the factor. Keep "
                    "parameters in float32 (autocast computes with copies of them in float16), or override "
                    "_unscale_grads_ to allow it"
                )
            yield grad._values() if grad.is_sparse else grad


def _shards(optimizer: Any) -> Iterable[Any]:
    """Where parameters are shared out among ranks, which must agree: one of the shards for each group of ranks."""
    params = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    parts = [getattr(p, how, None) for p in params for how in ("shard", "cut")]
    return {id(part.group): part for part in parts if part is not None}.values()
