"""norch.nn.parallel: modules over several devices or processes."""

import norch

from .data_parallel import DataParallel as DataParallel

_submodule = norch.late_submodules(__name__)


def __getattr__(name: str) -> object:
    if name == "DistributedDataParallel":  # late, since it imports norch.distributed
        from .distributed import DistributedDataParallel

        globals()[name] = DistributedDataParallel
        return DistributedDataParallel
    return _submodule(name)
