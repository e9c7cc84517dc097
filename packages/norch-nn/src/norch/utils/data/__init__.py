"""norch.utils.data: datasets, samplers and loaders of batches, under PyTorch's names."""

import norch

from .base_iterators import _DatasetKind as _DatasetKind
from .collate import default_collate as default_collate
from .collate import default_convert as default_convert
from .datapipes import DataChunk as DataChunk
from .datapipes import IterDataPipe as IterDataPipe
from .datapipes import MapDataPipe as MapDataPipe
from .datapipes import functional_datapipe as functional_datapipe
from .dataset import ChainDataset as ChainDataset
from .dataset import ConcatDataset as ConcatDataset
from .dataset import Dataset as Dataset
from .dataset import IterableDataset as IterableDataset
from .dataset import StackDataset as StackDataset
from .dataset import Subset as Subset
from .dataset import TensorDataset as TensorDataset
from .dataset import random_split as random_split
from .distributed import DistributedSampler as DistributedSampler
from .loader import DataLoader as DataLoader
from .randomness import sample_rng as sample_rng
from .sampler import BatchSampler as BatchSampler
from .sampler import RandomSampler as RandomSampler
from .sampler import Sampler as Sampler
from .sampler import SequentialSampler as SequentialSampler
from .sampler import SubsetRandomSampler as SubsetRandomSampler
from .sampler import WeightedRandomSampler as WeightedRandomSampler
from .worker import WorkerError as WorkerError
from .worker import WorkerInfo as WorkerInfo
from .worker import get_worker_info as get_worker_info

__getattr__ = norch.late_submodules(__name__)
