"""What `--record` writes down, and when."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.mark.parametrize(("status", "recorded"), [(0, True), (1, True), (2, False)])
def test_a_run_that_was_interrupted_is_not_recorded(tmp_path, status, recorded):
    conftest = runpy.run_path(str(Path(__file__).with_name("conftest.py")))
    finish = conftest["pytest_sessionfinish"]
    finish.__globals__.update(RECORD=tmp_path / "nightly.json", result=lambda stats, skipped: {})
    config = SimpleNamespace(
        getoption=lambda name: True,
        pluginmanager=SimpleNamespace(get_plugin=lambda name: SimpleNamespace(stats={})),
    )
    finish(SimpleNamespace(config=config, exitstatus=status))
    assert (tmp_path / "nightly.json").exists() == recorded
