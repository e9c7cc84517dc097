"""`norch.nn.parallel.DistributedDataParallel`, and what it is made of."""

from .buckets import GradBucket as GradBucket
from .model import DistributedDataParallel as DistributedDataParallel
