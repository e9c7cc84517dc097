"""A layer cut over processes: the columns of one matrix, then the rows of the next (Shoeybi et al., 2019).

plan = {"mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()}
parallelize_module(block, mesh["tp"], plan)
"""

from .loss import vocab_parallel_cross_entropy as vocab_parallel_cross_entropy
from .state import full_state_dict as full_state_dict
from .state import load_full_state_dict as load_full_state_dict
from .style import ColwiseParallel as ColwiseParallel
from .style import HeadwiseParallel as HeadwiseParallel
from .style import ParallelStyle as ParallelStyle
from .style import PrepareModuleInput as PrepareModuleInput
from .style import PrepareModuleOutput as PrepareModuleOutput
from .style import RowwiseParallel as RowwiseParallel
from .style import SequenceParallel as SequenceParallel
from .style import parallelize_module as parallelize_module
