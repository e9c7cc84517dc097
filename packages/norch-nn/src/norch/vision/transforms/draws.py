"""Where the random transforms take their numbers from."""

from __future__ import annotations

try:
    from norch.utils.data import sample_rng as generator
except ImportError:
    import numpy as np

    import norch

    def generator() -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=norch.randint(0, 1 << 62, (), device="cpu").item()))


__all__ = ["generator"]
