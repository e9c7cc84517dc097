"""Writes vision_models.json from torchvision: each model's number of parameters, and a digest of its keys."""

import json
from pathlib import Path

import torch
import torchvision
from test_vision_models import digest
from torchvision.models import segmentation

import norch

found = {}
for name in norch.vision.models.list_models():
    if name in torchvision.models.list_models():
        with torch.device("meta"):
            backbone = {"weights_backbone": None} if name in torchvision.models.list_models(segmentation) else {}
            model = torchvision.models.get_model(name, **backbone)
        found[name] = [sum(p.numel() for p in model.parameters()), digest(model.state_dict())]
Path(__file__).with_name("vision_models.json").write_text(json.dumps(found, indent=1) + "\n")
