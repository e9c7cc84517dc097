"""PyTorch's data pipes: datasets that are made of each other, `IterableWrapper(range(9)).map(f).shuffle().batch(4)`.

What files and archives PyTorch's pipes read is not here, nor its tracing of graphs of pipes.
"""

from . import iter as iter
from . import map as map
from .datapipe import DataChunk as DataChunk
from .datapipe import IterDataPipe as IterDataPipe
from .datapipe import MapDataPipe as MapDataPipe
from .datapipe import functional_datapipe as functional_datapipe
