"""norch.optim: optimisers, under PyTorch's names and on the public API of norch.

Arguments that mean the same in every optimiser:

    params: tensors that require grad, or dicts, groups, `{"params": tensors, option: value}`. ValueError for none.
    differentiable: the graph records the steps, so that gradients go through them to what gradients, parameters before
        the step and, given as tensors, `lr` and `weight_decay` were made of. Parameters may be results of ops then.
        Steps are made of tensor ops, and states are new tensors in each.
    param_group: such a dict. prepend: whether a hook is called before those that are there.
"""

import norch

from . import lr_scheduler as lr_scheduler
from . import swa_utils as swa_utils
from .adadelta import Adadelta as Adadelta
from .adafactor import Adafactor as Adafactor
from .adagrad import Adagrad as Adagrad
from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .adamax import Adamax as Adamax
from .asgd import ASGD as ASGD
from .lbfgs import LBFGS as LBFGS
from .lion import Lion as Lion
from .muon import Muon as Muon
from .nadam import NAdam as NAdam
from .optimizer import Optimizer as Optimizer
from .radam import RAdam as RAdam
from .rmsprop import RMSprop as RMSprop
from .rprop import Rprop as Rprop
from .sgd import SGD as SGD
from .sparse_adam import SparseAdam as SparseAdam

__getattr__ = norch.late_submodules(__name__)
