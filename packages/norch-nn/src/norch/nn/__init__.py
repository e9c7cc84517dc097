"""norch.nn: modules, losses and initialisation, under PyTorch's names and on the public API of norch."""

from . import functional, init, utils
from .activation import ELU, GELU, LeakyReLU, LogSoftmax, ReLU, Sigmoid, SiLU, Softmax, Softplus, Tanh
from .container import Sequential
from .linear import Flatten, Identity, Linear
from .loss import CrossEntropyLoss, MSELoss
from .module import Module
from .parameter import Buffer, Parameter
from .recurrent import GRU, LSTM, RNN, RNNBase
from .recurrent_cells import GRUCell, LSTMCell, RNNCell, RNNCellBase
from .state import StateDictError

__all__ = [
    "ELU",
    "GRU",
    "LSTM",
    "RNN",
    "GELU",
    "GRUCell",
    "LSTMCell",
    "RNNBase",
    "RNNCell",
    "RNNCellBase",
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
    "utils",
]
