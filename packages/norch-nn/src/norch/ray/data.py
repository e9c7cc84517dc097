"""Batches of Ray Data as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np

import norch

from .prepare import get_device


def iter_norch_batches(
    shard: Any,
    batch_size: int | None = 256,
    *,
    dtypes: Any = None,
    device: Any = "auto",
    skip: int = 0,
    **kwargs: Any,
) -> Iterator[dict[str, norch.Tensor]]:
    """The batches of a data set's part, `ray.train.get_dataset_shard(name)`: a tensor for each column.

    dtypes: one for all columns, or by column; by default those of the data.
    device: by default this worker's, see `get_device`.
    skip: batches at the beginning that are left out: those that a resumed run has seen.
    kwargs: those of the shard's `iter_batches`, as drop_last and prefetch_batches.

    Raises DTypeError for a column that is no array of numbers.
    """
    where = get_device() if device == "auto" else device
    batches = shard.iter_batches(batch_size=batch_size, batch_format="numpy", **kwargs)
    for batch in islice(batches, skip, None):
        yield {name: _tensor(name, values, dtypes, where) for name, values in batch.items()}


def _tensor(name: str, values: Any, dtypes: Any, device: Any) -> norch.Tensor:
    if values.dtype == object:  # a column of lists
        with suppress(ValueError):
            values = np.stack([np.asarray(value) for value in values])
    if values.dtype.kind not in "biuf":
        raise norch.DTypeError(
            f"iter_norch_batches(): column {name!r} holds {values.dtype}, which becomes no tensor; give its rows one "
            "shape and a dtype of numbers, or leave it out with Dataset.drop_columns"
        )
    dtype = dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes
    return norch.tensor(values, dtype=dtype, device=device)
