"""What the tests of norch-nn share: `--default-device cuda` runs them there."""

from __future__ import annotations

import gzip
import http.server
import threading
from pathlib import Path
from typing import Any

import pytest
from vision_files import md5, mnist_files

import norch
from norch.vision.datasets import MNIST, FashionMNIST
from norch.vision.datasets import download as downloads


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--default-device", help="make tensors there where a test names no device")


def pytest_configure(config: pytest.Config) -> None:
    device = config.getoption("--default-device")
    if device:
        norch.set_default_device(device)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--default-device"):
        host = [item for item in items if "on_host" in item.fixturenames]  # type: ignore[attr-defined]
        config.hook.pytest_deselected(items=host)
        items[:] = [item for item in items if item not in set(host)]


@pytest.fixture
def on_host() -> None:
    """For tests of what the host does (pictures, files, processes), which --default-device leaves out."""


@pytest.fixture
def no_distribution(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No folder of a distribution, and no pause between tries of a download."""
    monkeypatch.setattr(FashionMNIST, "package_folder", str(tmp_path / "distribution"))
    monkeypatch.setattr(downloads, "PAUSE", 0.0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Any:
    """MNIST whose published files are those of `mnist_files`."""
    contents, arrays = mnist_files()
    packed = {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in contents.items()}
    for kind in (MNIST, FashionMNIST):
        monkeypatch.setattr(kind, "resources", [(name, md5(data)) for name, data in packed.items()])
        monkeypatch.setattr(kind, "unpacked_md5", {name: md5(data) for name, data in contents.items()})
    return contents, packed, arrays


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        data = self.server.files.get(self.path)
        if callable(data):
            data = data()
        if data is None:
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(self.server.claims.get(self.path, len(data))))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server of `server.files` by path, at `server.url`; `server.asked` lists the paths that were asked for."""
    monkeypatch.setenv("no_proxy", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files, server.asked, server.claims = {}, [], {}
        server.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
