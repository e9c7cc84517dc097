"""Writes trajectories.json, what PyTorch gives for the runs of trajectories.py: python make_trajectories.py"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from trajectories import OPTIMIZERS, SCHEDULERS, run_optimizer, run_scheduler, summary

runs = {f"optimizer {name}": summary(run_optimizer(torch, name)) for name in OPTIMIZERS}
runs |= {f"scheduler {name}": summary(run_scheduler(torch, name)) for name in SCHEDULERS}
lines = [f"{json.dumps(name)}: {json.dumps(run)}" for name, run in runs.items()]
Path(__file__).with_suffix("").with_name("trajectories.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
