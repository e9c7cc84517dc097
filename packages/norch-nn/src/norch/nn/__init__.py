"""norch.nn: modules, losses and initialisation, under PyTorch's names and on the public API of norch."""

from . import functional, init
from .activation import ELU, GELU, LeakyReLU, LogSoftmax, ReLU, Sigmoid, SiLU, Softmax, Softplus, Tanh
from .container import Sequential
from .distance import CosineSimilarity, PairwiseDistance
from .linear import Flatten, Identity, Linear
from .loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    CTCLoss,
    GaussianNLLLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    NLLLoss2d,
    PoissonNLLLoss,
    SmoothL1Loss,
)
from .margin_loss import (
    CosineEmbeddingLoss,
    HingeEmbeddingLoss,
    MarginRankingLoss,
    MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)
from .module import Module
from .parameter import Buffer, Parameter
from .state import StateDictError

__all__ = [
    "PairwiseDistance",
    "CosineSimilarity",
    "TripletMarginWithDistanceLoss",
    "TripletMarginLoss",
    "SoftMarginLoss",
    "MultiMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiLabelMarginLoss",
    "MarginRankingLoss",
    "HingeEmbeddingLoss",
    "CosineEmbeddingLoss",
    "SmoothL1Loss",
    "PoissonNLLLoss",
    "NLLLoss2d",
    "NLLLoss",
    "L1Loss",
    "KLDivLoss",
    "HuberLoss",
    "GaussianNLLLoss",
    "CTCLoss",
    "BCEWithLogitsLoss",
    "BCELoss",
    "ELU",
    "GELU",
    "Buffer",
    "CrossEntropyLoss",
    "Flatten",
    "Identity",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "Module",
    "Parameter",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "StateDictError",
    "Tanh",
    "functional",
    "init",
]
