"""Who holds the memory: now, over time, and in a training step that has not run."""

from __future__ import annotations
