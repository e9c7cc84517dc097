"""Training on a Ray cluster: Ray Train starts the workers, restarts what died and keeps checkpoints.

from norch.ray import NorchTrainer
trainer = NorchTrainer(train, scaling_config=ray.train.ScalingConfig(num_workers=4))
trainer.fit()

`train` runs in each worker, where norch.distributed is ready. `pip install norch-nn[ray]` brings Ray.
"""

from __future__ import annotations

try:
    from .backend import NorchConfig
except ModuleNotFoundError as error:
    raise ImportError(f"norch.ray needs Ray Train: pip install norch-nn[ray] ({error})") from error
from .checkpoint import report, resume
from .data import iter_norch_batches
from .prepare import get_device, prepare_data_loader, prepare_model
from .trainer import NorchTrainer

__all__ = [
    "NorchConfig",
    "NorchTrainer",
    "get_device",
    "iter_norch_batches",
    "prepare_data_loader",
    "prepare_model",
    "report",
    "resume",
]
