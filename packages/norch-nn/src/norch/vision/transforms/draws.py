"""Where the random transforms take their numbers from.

In a DataLoader: the generator of the sample, keyed by (seed, epoch, sample index). Elsewhere: a new one, seeded by
norch's.
"""

from norch.utils.data import sample_rng as generator

__all__ = ["generator"]
