"""All ops: what the modules of this folder make public, under the names that it has as `norch.*`."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from .generator import default_generator
from .registry import FUNCTIONS, LOOKUPS

if TYPE_CHECKING:
    from .clipping import *
    from .copying import *
    from .creation import *
    from .creation_like import *
    from .elementwise.arithmetic import *
    from .elementwise.bits import *
    from .elementwise.composites import *
    from .elementwise.error_function import *
    from .elementwise.gamma import *
    from .elementwise.special import *
    from .elementwise.weighted import *
    from .from_data import *
    from .generator import *
    from .indexing import *
    from .masks import *
    from .matrix.distances import *
    from .matrix.einsum import *
    from .matrix.matmul import *
    from .matrix.multi_dot import *
    from .matrix.products import *
    from .nn.activation import *
    from .nn.adaptive import *
    from .nn.attention import *
    from .nn.batch_normalization import *
    from .nn.classification import *
    from .nn.convolution import *
    from .nn.ctc import *
    from .nn.deformed import *
    from .nn.dropout import *  # type: ignore[assignment]
    from .nn.embedding import *
    from .nn.folding import *
    from .nn.gating import *
    from .nn.interpolation import *
    from .nn.linear import *
    from .nn.loss import *
    from .nn.normalization import *
    from .nn.pixels import *
    from .nn.pooling import *
    from .nn.quantized import *
    from .nn.recurrence import *
    from .nn.regions import *
    from .nn.shrinking import *
    from .nn.softmax import *
    from .nn.volumes import *
    from .optimizer.adam import *
    from .optimizer.adaptive import *
    from .optimizer.descent import *
    from .promotion import *
    from .random import *
    from .reduction.norms import *
    from .reduction.reductions import *
    from .reduction.scan import *
    from .reduction.sorting import *
    from .reduction.statistics import *
    from .reduction.variance import *
    from .sampling import *
    from .scatter_copies import *
    from .shape.arranging import *
    from .shape.edges import *
    from .shape.joining import *
    from .shape.padding import *
    from .shape.strided import *
    from .shape.views import *
else:
    from . import (
        copying,
        creation,
        creation_like,
        from_data,
        indexing,
        masks,
        optimizer,
        promotion,
        random,
        rejection,
        sampling,
        scatter_copies,
    )
    from .elementwise import arithmetic, bits, composites, error_function, gamma, special, weighted
    from .matrix import distances, matmul, products
    from .nn import (
        activation,
        attention,
        batch_normalization,
        classification,
        convolution,
        dropout,
        embedding,
        gating,
        linear,
        loss,
        normalization,
        pooling,
        shrinking,
        softmax,
    )
    from .reduction import norms, reductions, scan, sorting, statistics, variance
    from .shape import arranging, edges, joining, padding, strided, views

    globals().update(FUNCTIONS)
    __all__ = [*FUNCTIONS, "default_generator"]


LATE = {
    **dict.fromkeys(("adaptive_avg_pool3d", "avg_pool3d", "conv3d", "conv_transpose3d", "max_pool3d"), "nn.volumes"),
    **dict.fromkeys(("channel_shuffle", "pixel_shuffle", "pixel_unshuffle"), "nn.pixels"),
    **dict.fromkeys(("scale_", "total_norm"), "clipping"),
    **dict.fromkeys(("dequantize_weight", "quantize_weight", "quantized_linear"), "nn.quantized"),
    "adaptive_max_indices": "nn.adaptive", "chain_matmul": "matrix.multi_dot", "ctc_loss": "nn.ctc",
    "deform_columns": "nn.deformed", "einsum": "matrix.einsum", "grid_sample": "nn.sampling",
    "interpolate": "nn.interpolation", "multi_margin_rows": "nn.margins", "recurrence": "nn.recurrence",
    **dict.fromkeys(("col2im", "im2col"), "nn.folding"),
    **dict.fromkeys(("bin_weights", "kept_boxes", "regions_by_image", "roi_align"), "nn.regions"),
}  # fmt: skip
"""By name of a function: the module that it is imported from when it is first used, so that it costs no time before."""


def __dir__() -> list[str]:
    return sorted({*globals(), *LATE})


def __getattr__(name: str) -> object:
    """What is imported late, and ops of plug-ins."""
    if name in LATE:
        late: object = getattr(_import_module(f"{__name__}.{LATE[name]}"), name)
        globals()[name] = late
        return late
    if name in ("aten", "load_library", "loaded_libraries"):
        return getattr(_import_module("norch.compat.aten"), name)
    if not name.startswith("_"):
        for lookup in LOOKUPS:
            found: object = lookup(name)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module 'norch.ops' has no attribute {name!r}")
