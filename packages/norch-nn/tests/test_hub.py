"""Files of weights by URL: `norch.hub`."""

from __future__ import annotations

import hashlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import norch
from norch import hub

pytestmark = pytest.mark.usefixtures("on_host")


@pytest.fixture
def weights(server: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The name of a file of weights on the server, which ends with its hash."""
    monkeypatch.setattr(hub, "_folder", None)
    norch.save({"weight": norch.arange(3)}, tmp_path / "made")
    data = (tmp_path / "made").read_bytes()
    name = f"net-{hashlib.sha256(data).hexdigest()[:8]}.pth"
    server.files[f"/{name}"] = data
    return name


def test_weights_are_downloaded_once(server: Any, weights: str, tmp_path: Any, capsys: Any) -> None:
    hub.set_dir(tmp_path / "hub")
    assert hub.get_dir() == str(tmp_path / "hub")
    for _ in range(2):
        found = hub.load_state_dict_from_url(server.url + weights, map_location="cpu", check_hash=True)
        assert found["weight"].tolist() == [0, 1, 2]
    assert server.asked == [f"/{weights}"]
    assert [file.name for file in (tmp_path / "hub" / "checkpoints").iterdir()] == [weights]
    assert weights in capsys.readouterr().err
    hub.load_state_dict_from_url(server.url + weights, tmp_path / "other", progress=False, file_name="mine")
    assert (tmp_path / "other" / "mine").exists()
    assert capsys.readouterr().err == ""


def test_another_file_is_refused(server: Any, weights: str, tmp_path: Any) -> None:
    server.files[f"/{weights}"] += b"."
    with pytest.raises(RuntimeError, match=r"download_url_to_file\(\): http.*does not have the sha256"):
        hub.load_state_dict_from_url(server.url + weights, tmp_path / "here", check_hash=True, progress=False)
    with pytest.raises(OSError, match="404"):
        hub.download_url_to_file(server.url + "gone", tmp_path / "gone", progress=False)
    assert list((tmp_path / "here").iterdir()) == []


def test_the_folder_is_pytorchs(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(hub, "_folder", None)
    monkeypatch.delenv("TORCH_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert hub.get_dir() == str(tmp_path / "torch" / "hub")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    assert hub.get_dir() == str(tmp_path / "home" / "hub")


def test_a_repository_is_not_run() -> None:
    with pytest.raises(NotImplementedError, match=r"norch has no hub.load; clone the repository"):
        hub.load("pytorch/vision", "resnet18")


def test_the_bar_of_downloads_is_among_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=list))
    assert hub.tqdm is list
    with pytest.raises(AttributeError, match="nonsense"):
        _ = hub.nonsense
