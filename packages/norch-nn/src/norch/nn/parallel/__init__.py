"""norch.nn.parallel: modules over several devices or processes."""

from importlib import import_module

import norch

from .data_parallel import DataParallel as DataParallel

_submodule = norch.late_submodules(__name__)


def __getattr__(name: str) -> object:
    if name == "DistributedDataParallel":  # late, since norch.nn is imported without norch.distributed
        found = globals()[name] = import_module("norch.distributed.data_parallel").DistributedDataParallel
        return found
    return _submodule(name)
