"""A headless Chromium for tests of pages: its DevTools protocol, over the pipe that it offers instead of a socket.

    def test_a_page(browser, tmp_path):
        page = browser.open(tmp_path / "page.html", width=400, dark=True)
        page.click("#node-3")
        assert page.evaluate("document.title") == "..."

`browser` is a fixture of conftest.py; it skips where no Chromium is found. `NORCH_BROWSER` names one, or none by "".
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip
KEYS = {"Enter": 13, "Escape": 27, " ": 32, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def find() -> str | None:
    """The browser's program."""
    named = os.environ.get("NORCH_BROWSER")
    if named is not None:
        return named or None
    return next((found for found in map(shutil.which, NAMES) if found), None)


class Browser:
    """One process for many pages."""

    def __init__(self, program: str, patience: float = 60) -> None:
        self.patience = patience
        self.folder = tempfile.TemporaryDirectory(prefix="norch-browser-", ignore_cleanup_errors=True)
        self.log = Path(self.folder.name) / "log"
        # It reads from descriptor 3 and writes to 4.
        self.process = subprocess.Popen(
            ["sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>"$0"', str(self.log), program, *OPTIONS,
             f"--user-data-dir={self.folder.name}", "about:blank"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.answers: dict[int, Any] = {}
        self.pages: dict[str, Page] = {}
        self.read, self.number = b"", 0

    def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Asks for `method` of the protocol and waits for its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        end = time.monotonic() + self.patience
        while self.number not in self.answers:
            self._receive(end - time.monotonic())
        answer = self.answers.pop(self.number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _receive(self, seconds: float) -> None:
        pipe = self.process.stdout
        if seconds <= 0 or not select.select([pipe], [], [], seconds)[0]:
            raise TimeoutError("the browser does not answer")
        data = os.read(pipe.fileno(), 1 << 16)
        if not data:
            raise RuntimeError(f"the browser ended: {self.log.read_text()[-2000:]}")
        *messages, self.read = (self.read + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].happened(message["method"], message["params"])

    def open(self, where: Path | str, width: int = 1200, height: int = 800, dark: bool = False) -> Page:
        """The page of a file or an address, once it has loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, target, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.look(width, height, dark)
        page.go(where)
        return page

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()


class Page:
    """errors: uncaught exceptions and errors on the console. requests: addresses that the page has asked for."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self.browser, self.target, self.session = browser, target, session
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.loads = 0

    def call(self, method: str, **params: Any) -> Any:
        return self.browser.call(method, self.session, **params)

    def happened(self, event: str, params: Any) -> None:
        if event == "Runtime.exceptionThrown":
            thrown = params["exceptionDetails"]
            self.errors.append(thrown.get("exception", {}).get("description") or thrown["text"])
        elif event == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event == "Page.loadEventFired":
            self.loads += 1

    def go(self, where: Path | str) -> None:
        before = self.loads
        self.call("Page.navigate", url=where.resolve().as_uri() if isinstance(where, Path) else where)
        end = time.monotonic() + self.browser.patience
        while self.loads == before:
            self.browser._receive(end - time.monotonic())

    def look(self, width: int, height: int = 800, dark: bool = False, media: str = "", script: bool = True) -> None:
        """How the page is seen: width and height in pixels, dark or light, `media="print"`, with or without JavaScript
        (from the next page on)."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript; a promise is awaited. Raises RuntimeError with what it throws."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            thrown = found["exceptionDetails"]
            raise RuntimeError(thrown.get("exception", {}).get("description") or thrown["text"])
        return found["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Waits until an expression is true, and returns it."""
        end = time.monotonic() + self.browser.patience
        while not (value := self.evaluate(expression)):
            if time.monotonic() > end:
                raise TimeoutError(expression)
            time.sleep(0.02)
        return value

    def middle(self, selector: str) -> tuple[float, float]:
        """Where the middle of an element is seen, in pixels."""
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;"
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()"
        )
        if box is None:
            raise LookupError(selector)
        return box[0], box[1]

    def click(self, selector: str) -> None:
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def drag(self, x: float, y: float, dx: float, dy: float) -> None:
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        for part in (0.5, 1):
            self.mouse("mouseMoved", x + part * dx, y + part * dy, button="left", buttons=1)
        self.mouse("mouseReleased", x + dx, y + dy, button="left", clickCount=1)

    def wheel(self, x: float, y: float, down: float) -> None:
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=down)

    def mouse(self, kind: str, x: float, y: float, **params: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **params)

    def press(self, key: str, shift: bool = False) -> None:
        """Presses a key: a name of KEYS, or the character that it types."""
        code = KEYS.get(key, ord(key.upper()[0]))
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        params = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 * shift}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **params)
        self.call("Input.dispatchKeyEvent", type="keyUp", **params)

    def write(self, text: str) -> None:
        """Types text into what has the focus."""
        self.call("Input.insertText", text=text)

    def screenshot(self, path: Path | str, whole: bool = False) -> None:
        """Saves what is seen, or the whole page, as a PNG."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])

    def close(self) -> None:
        self.browser.pages.pop(self.session, None)
        self.browser.call("Target.closeTarget", targetId=self.target)


def running() -> Iterator[Browser | None]:
    """The browser while it is used, or None where there is none."""
    program = find()
    if program is None:
        yield None
        return
    browser = Browser(program)
    try:
        yield browser
    finally:
        browser.close()
