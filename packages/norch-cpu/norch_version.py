"""The version: norch-core's, and in an sdist what that was. pyproject.toml names this file."""

import re
from pathlib import Path

HERE = Path(__file__).parent
PLACES = (("PKG-INFO", r"^Version: (\S+)"), ("../norch-core/src/norch/version.py", r'^__version__ = "(.+)"'))


def dynamic_metadata(settings, project):
    path, pattern = next((HERE / path, pattern) for path, pattern in PLACES if (HERE / path).exists())
    return {"version": re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)[1]}
