"""Join: training where some processes have fewer batches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any


class Join:
    """`model.join()` of a DistributedDataParallel, as PyTorch's scripts write it: `with Join([model]): …`."""

    def __init__(
        self, joinables: Sequence[Any], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any
    ) -> None:
        if len(joinables) != 1:
            raise NotImplementedError(f"Join: norch joins one DistributedDataParallel, not {len(joinables)} objects")
        average = kwargs.get("divide_by_initial_world_size", True)
        self._context: AbstractContextManager[None] = joinables[0].join(average, enable, throw_on_early_termination)

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(self, *exception: Any) -> Any:
        return self._context.__exit__(*exception)
