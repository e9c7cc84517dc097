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
    with pytest.raises(NotImplementedError, match="norch.hub: clone pytorch/vision"):
        hub.load("pytorch/vision", "resnet18")


def test_the_bar_of_downloads_is_among_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=list))
    assert hub.tqdm is list
    with pytest.raises(AttributeError, match="nonsense"):
        _ = hub.nonsense


def test_models_of_a_folder(tmp_path: Any) -> None:
    (tmp_path / "parts_of_hub.py").write_text("SIZE = 3\n")
    (tmp_path / "hubconf.py").write_text(
        "dependencies = ['numpy']\nfrom parts_of_hub import SIZE\ndef pair(n=1, **more): return [SIZE * n, more]\n"
    )
    before = sys.path[:]
    assert hub.load(str(tmp_path), "pair", 2, source="local", trust_repo=True, a=1) == [6, {"a": 1}]
    assert sys.path == before
    with pytest.raises(RuntimeError, match="Cannot find callable other"):
        hub.load(str(tmp_path), "other", source="local")
    with pytest.raises(NotImplementedError, match="source='local'"):
        hub.load("owner/name", "pair")
    with pytest.raises(ValueError, match="Unknown source"):
        hub.load(str(tmp_path), "pair", source="web")
    with pytest.raises(FileNotFoundError, match="no hubconf"):
        hub.load(str(tmp_path / "none"), "pair", source="local")
    (tmp_path / "hubconf.py").write_text("dependencies = ['nothing_of_that_name']\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: nothing_of_that_name"):
        hub.load(str(tmp_path), "pair", source="local")


def test_what_pytorch_has_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_folder", str(tmp_path))
    folder = tmp_path / "owner_name_feature_x"
    folder.mkdir()
    (folder / "beside.py").write_text("factor = 3\n")
    (folder / "hubconf.py").write_text(
        'from beside import factor as _factor\n\ndef triple(x):\n    """x three times."""\n    return _factor * x\n'
    )
    assert hub.load("owner/name:feature/x", "triple", 2, trust_repo=True) == 6
    assert hub.list("owner/name:feature/x", force_reload=False) == ["triple"]
    assert hub.help("owner/name:feature/x", "triple") == "x three times."
    with pytest.raises(NotImplementedError, match="norch.hub: clone owner/name, and load"):
        hub.list("owner/name")
    folder.rename(tmp_path / "owner_name_master")
    assert hub.list("owner/name") == hub.list(str(tmp_path / "owner_name_master")) == ["triple"]
    with pytest.raises(RuntimeError, match="Cannot find callable other in hubconf"):
        hub.help("owner/name", "other")
