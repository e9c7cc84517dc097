"""norch.optim.lr_scheduler: schedules of learning rates, under PyTorch's names.

Arguments that mean the same in every scheduler:

    optimizer: whose groups get the learning rates. Raises TypeError unless it is an Optimizer.
    last_epoch: the epoch after which it goes on; -1 begins.
"""

from .base import LRScheduler as LRScheduler
from .base import _enable_get_lr_call as _enable_get_lr_call
from .combined import ChainedScheduler as ChainedScheduler
from .combined import SequentialLR as SequentialLR
from .cosine import CosineAnnealingLR as CosineAnnealingLR
from .cosine import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from .cycle import CyclicLR as CyclicLR
from .cycle import OneCycleLR as OneCycleLR
from .decay import ConstantLR as ConstantLR
from .decay import ExponentialLR as ExponentialLR
from .decay import LambdaLR as LambdaLR
from .decay import LinearLR as LinearLR
from .decay import MultiplicativeLR as MultiplicativeLR
from .decay import MultiStepLR as MultiStepLR
from .decay import PolynomialLR as PolynomialLR
from .decay import StepLR as StepLR
from .plateau import ReduceLROnPlateau as ReduceLROnPlateau

_LRScheduler = LRScheduler  # the name before PyTorch 2.0
