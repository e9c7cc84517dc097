"""Where the random transforms take their numbers from."""

from __future__ import annotations

import numpy as np

import norch


def generator() -> np.random.Generator:
    """The generator of the sample that a DataLoader is making, keyed by (seed, epoch, index of the sample).

    Outside a loader a new one, seeded by a draw from norch's default generator.
    """
    return np.random.Generator(np.random.Philox(key=norch.randint(0, 1 << 62, (), device="cpu").item()))
