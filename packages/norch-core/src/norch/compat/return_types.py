"""PyTorch's `torch.return_types`: the classes of what functions with several results give, by the functions' names.

Functions that give the same share a class here.
"""

from __future__ import annotations

from ..linalg.decompositions import QR, SVD
from ..linalg.solving import SLogDet
from ..ops.reduction.reductions import ValuesIndices
from ..ops.reduction.statistics import MinMax

aminmax, qr, slogdet, svd = MinMax, QR, SLogDet, SVD
cummax = cummin = kthvalue = max = median = min = mode = nanmedian = sort = topk = ValuesIndices
