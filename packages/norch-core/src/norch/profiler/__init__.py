"""Where the time of a program goes, op by op and line by line, with the names of PyTorch's profiler.

    from norch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
        with record_function("forward"):
            loss = model(x).sum()
        loss.backward()
    print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    print(prof.key_averages(group_by_line=True).table(sort_by="cpu_time_total", row_limit=10))
    prof.export_chrome_trace("trace.json")      # https://ui.perfetto.dev opens it
    prof.export_html("profile.html")            # a flame view in one page

`norch.profiler.nvtx` and `norch.autograd.profiler.emit_nvtx` mark ranges for NVIDIA's tools.
"""

from __future__ import annotations

from ..submodules import late_submodules
from .event import FunctionEvent
from .event_list import EventList
from .session import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "EventList",
    "FunctionEvent",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


def kineto_available() -> bool:
    """True: `profile` is here, as it is in PyTorch where that library is."""
    return True


__getattr__ = late_submodules(__name__)
