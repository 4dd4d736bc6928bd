"""A headless Chromium, driven by its debugging protocol over two pipes: no package and no port are needed.

``find()`` says where it is: CHROMIUM, or one of the usual names on the path.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
FLAGS = ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
         "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio"]  # fmt: skip
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "PageUp": 33, "PageDown": 34, "Tab": 9, "Enter": 13,
        "Escape": 27, " ": 32}  # fmt: skip
ALT, CONTROL, SHIFT = 1, 2, 8


def find() -> str | None:
    named = os.environ.get("CHROMIUM")
    if named:
        return named if Path(named).exists() else None
    return next((path for path in map(shutil.which, NAMES) if path), None)


class BrowserError(RuntimeError):
    pass


class Browser:
    """One page. ``console`` collects messages and errors, ``requests`` what the page asked for besides itself."""

    def __init__(self, width: int = 1400, height: int = 1000, timeout: float = 60) -> None:
        path = find()
        assert path, "no Chromium"
        self.timeout = timeout
        self.console: list[str] = []
        self.requests: list[str] = []
        self._profile = tempfile.TemporaryDirectory(prefix="tonnage-browser-", ignore_cleanup_errors=True)
        self._buffer, self._next, self._session, self._events = b"", 0, None, []
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()

        def pipes() -> None:  # the protocol's own numbers
            os.dup2(to_child, 103)
            os.dup2(from_child, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        flags = [*FLAGS, f"--user-data-dir={self._profile.name}", f"--window-size={width},{height}", "about:blank"]
        self._process = subprocess.Popen([path, *flags], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, preexec_fn=pipes, close_fds=False)
        os.close(to_child)
        os.close(from_child)
        os.set_blocking(self._read, False)
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(target for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    # ---- the protocol

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if time.monotonic() > deadline:
                raise BrowserError("Chromium does not answer")
            if self._process.poll() is not None:
                raise BrowserError(f"Chromium ended with {self._process.returncode}")
            try:
                self._buffer += os.read(self._read, 1 << 20)
            except BlockingIOError:
                time.sleep(0.002)
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method", ""), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.consoleAPICalled":
            self.console.append(f"{params['type']}: " + " ".join(str(arg.get("value", arg.get("description"))) for arg in params["args"]))
        elif method == "Runtime.exceptionThrown":
            detail = params["exceptionDetails"]
            self.console.append("exception: " + detail.get("exception", {}).get("description", detail["text"]))
        elif method == "Log.entryAdded":
            self.console.append(f"{params['entry']['level']}: {params['entry']['text']}")
        elif method == "Network.requestWillBeSent" and params.get("type") != "Document":
            self.requests.append(params["request"]["url"][:200])
        elif method == "Page.javascriptDialogOpening":
            self.console.append("dialog: " + params["message"])
            self._send("Page.handleJavaScriptDialog", accept=True)

    def _send(self, method: str, **params: Any) -> int:
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        return self._next

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number, deadline = self._send(method, **params), time.monotonic() + self.timeout
        while True:
            message = self._receive(deadline)
            if message.get("id") == number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']['message']}")
                return message["result"]
            if "method" in message:
                self._note(message)

    # ---- the page

    def open(self, path: Path | str, ready: str = "document.documentElement?.dataset.ready === '1'") -> None:
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        self.wait(ready)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; promises are waited for."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise BrowserError(done["exceptionDetails"].get("exception", {}).get("description", "exception"))
        return done["result"].get("value")

    def wait(self, condition: str) -> None:
        deadline = time.monotonic() + self.timeout
        while not self.run(f"!!({condition})"):
            if time.monotonic() > deadline:
                raise BrowserError(f"never came true: {condition}; {self.console}")
            time.sleep(0.02)

    def settle(self) -> None:
        """Until what was asked for is drawn."""
        self.run("new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 250))")

    def key(self, key: str, modifiers: int = 0) -> None:
        text = {} if key in KEYS and key not in (" ", "Enter") else {"text": "\r" if key == "Enter" else key}
        code = KEYS.get(key, ord(key[0].upper()))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, modifiers=modifiers, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code, modifiers=modifiers)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def box(self, selector: str) -> dict[str, float]:
        """x, y, width, height of an element in the window."""
        return self.run(f"(({{x, y, width, height}}) => ({{x, y, width, height}}))(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def prefer(self, **features: str) -> None:
        """prefer(color_scheme="dark") sets prefers-color-scheme."""
        media = [{"name": "prefers-" + name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=media)

    def screenshot(self, path: Path | str, whole: bool = False) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        Path(path).write_bytes(base64.b64decode(data))
