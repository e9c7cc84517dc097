"""Communication hooks of DistributedDataParallel: how gradients are brought together instead of by a plain average."""

from . import default_hooks as default_hooks
