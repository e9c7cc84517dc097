"""Draws docs/sin_squared.png, the README's picture: the demo's, in 32 colours."""

import os
import subprocess
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "sin_squared.png"

environment = os.environ | {"NORCH_BACKEND_CPU": "numpy"}  # so that it is the same everywhere
demo = [sys.executable, str(ROOT / "examples" / "sin_squared.py"), "--out", str(PICTURE)]
subprocess.run(demo, env=environment, check=True, stdout=subprocess.DEVNULL)
Image.open(PICTURE).convert("RGB").quantize(32).save(PICTURE, optimize=True)
