"""`norch.autograd.profiler`: PyTorch's older profiler by the same names, and NVTX ranges."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from .event_list import EventList
from .nvtx import emit_nvtx
from .session import ProfilerActivity, record_function
from .session import profile as _profile

__all__ = ["emit_nvtx", "profile", "record_function"]


class profile:
    """`norch.profiler.profile` with the arguments of PyTorch's older one, and the methods of its events.

    enabled: False notes nothing. use_cuda, or use_device="cuda": with the time on the device. The last five arguments
    are PyTorch's, and change nothing. Raises RuntimeError where a profile runs already.
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
    ) -> None:
        self.enabled = enabled
        activities = {ProfilerActivity.CPU} | ({ProfilerActivity.CUDA} if use_cuda or use_device else set())
        self._profile = _profile(
            activities=activities, record_shapes=record_shapes, with_flops=with_flops, profile_memory=profile_memory,
            with_stack=with_stack,
        )  # fmt: skip

    def __enter__(self) -> profile:
        if self.enabled:
            self._profile.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.enabled:
            self._profile.stop()

    @property
    def function_events(self) -> EventList:
        """The events. Raises AssertionError before there are any."""
        return self._profile.events()

    def __getattr__(self, name: str) -> Any:
        """`key_averages`, `table`, `total_average`, `export_chrome_trace`, `export_stacks`, of the events."""
        if name.startswith("_"):
            raise AttributeError(name)
        own = getattr(_profile, name, None)
        return getattr(self._profile if own is not None else self.function_events, name)

    def __str__(self) -> str:
        return self.function_events.table() if self._profile._events is not None else "<no events>"
