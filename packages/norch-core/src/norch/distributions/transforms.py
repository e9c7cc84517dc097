"""`norch.distributions.transforms`: invertible changes of values, with the logarithms of their Jacobian determinants.

Arguments that mean the same in every transform:

    x, y: values before and after. cache_size: whether the last pair of values is kept (1) or not (0). shape: a shape
"""

from .elementwise_transforms import (
    AbsTransform,
    AffineTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
)
from .elementwise_transforms import clipped_sigmoid as _clipped_sigmoid  # noqa: F401  # as PyTorch's file has it
from .transform import ComposeTransform, Transform
from .transform import _InverseTransform as _InverseTransform
from .vector_transforms import (
    CatTransform,
    CorrCholeskyTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    ReshapeTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
)

identity_transform = ComposeTransform([])

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]
