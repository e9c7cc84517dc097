"""How long statements take, by PyTorch's names: a Timer measures, a Measurement says how sure that is, and Compare puts
several side by side.

    t = Timer("norch.mm(a, b)", globals={"a": a, "b": b}, label="product", description="float32")
    print(t.blocked_autorange())
"""

from .compare import Compare as Compare
from .measurement import Measurement as Measurement
from .measurement import TaskSpec as TaskSpec
from .timer import Timer as Timer
from .timer import timer as timer
