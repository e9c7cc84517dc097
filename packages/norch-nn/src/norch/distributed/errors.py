"""What norch.distributed raises."""

from __future__ import annotations


class DistributedError(RuntimeError):
    """A process is missing, hangs or did something else than the others: the message says which, where and what.

    As in PyTorch it is also DistBackendError.
    """


DistBackendError = DistNetworkError = DistStoreError = DistributedError
