"""A headless Chromium spoken to over a pipe (the DevTools protocol,
https://chromedevtools.github.io/devtools-protocol/); needs no library.

with Chromium() as browser:
    browser.open(path)
    browser.run("document.title")
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
from fcntl import F_DUPFD, fcntl
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--mute-audio", "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60.0
KEYS = {
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Enter": 13, "Tab": 9,
    " ": 32,
}  # fmt: skip


def missing() -> str | None:
    """Why there is no browser; None where there is one."""
    return None if any(map(shutil.which, NAMES)) else "there is no Chromium on PATH: apt install chromium"


class Chromium:
    """One browser with one page. `events` holds everything it said about requests, the console and exceptions."""

    def __init__(self) -> None:
        program = next(filter(None, map(shutil.which, NAMES)))
        self.folder = tempfile.TemporaryDirectory(prefix="synth-chromium-", ignore_cleanup_errors=True)
        ours, theirs = os.pipe(), os.pipe()

        def pipes() -> None:  # the browser reads commands from 3 and writes answers to 4
            read, write = fcntl(ours[0], F_DUPFD, 10), fcntl(theirs[1], F_DUPFD, 10)  # neither is 3 or 4 itself
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={self.folder.name}", "about:blank"], preexec_fn=pipes, close_fds=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(ours[0])
        os.close(theirs[1])
        self.write, self.read = ours[1], theirs[0]
        self.number, self.held = 0, b""
        self.events: list[dict] = []
        target = next(t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = ""
        self.session = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.write)
        os.close(self.read)
        self.folder.cleanup()

    def call(self, method: str, **parameters: Any) -> dict:
        """A command of the protocol to the page. Raises RuntimeError for its error, TimeoutError where no answer
        comes."""
        return self._call(method, self.session, **parameters)

    def _call(self, method: str, session: str = "", **parameters: Any) -> dict:
        self.number += 1
        doc = {"id": self.number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.write, json.dumps(doc).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            said = self._next(until)
            if said.get("id") == self.number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                return said["result"]
            self.events.append(said)

    def _next(self, until: float) -> dict:
        while b"\0" not in self.held:
            if not select.select([self.read], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"the browser said nothing for {PATIENCE:.0f} s")
            part = os.read(self.read, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self.held += part
        line, _, self.held = self.held.partition(b"\0")
        return json.loads(line)

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a file anew and wait for its load event; what was said before is forgotten."""
        self._go("about:blank")  # else another fragment of the same file would load nothing
        self.events.clear()
        self._go(path.resolve().as_uri() + fragment)

    def _go(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression; promises are resolved. Raises RuntimeError for an exception."""
        # The page's policy allows no code from strings; what the protocol evaluates is not under it.
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def wait(self, script: str) -> None:
        """Until the expression is true; it may fail while a page goes and another comes. Raises TimeoutError."""
        until, failed = time.monotonic() + PATIENCE, ""
        while True:
            try:
                if self.run(script):
                    return
            except RuntimeError as error:
                failed = f" ({error})"
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {script}{failed}")
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """A key of the keyboard, to whatever has the focus."""
        code = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": KEYS[key]}
        text = {" ": " ", "Enter": "\r"}.get(key)
        more = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        for event in (more, {"type": "keyUp"}):
            self.call("Input.dispatchKeyEvent", **code, **event)

    def point(self, x: float, y: float, click: bool = False) -> None:
        """Move the pointer to a place of the window; press it there."""
        self._mouse("mouseMoved", x, y, button="none")
        if click:
            self._mouse("mousePressed", x, y)
            self._mouse("mouseReleased", x, y)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at one place of the window, move it to another and release it there."""
        self._mouse("mousePressed", *start)
        self._mouse("mouseMoved", *end)
        self._mouse("mouseReleased", *end)

    def _mouse(self, kind: str, x: float, y: float, button: str = "left") -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def window(self, width: int, height: int, dark: bool = False) -> None:
        """The size of the window in CSS pixels, and the colour scheme that the user prefers."""
        size = {"width": width, "height": height, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", deviceScaleFactor=1, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, selector: str = "") -> bytes:
        """A PNG of the window, or of the element that `selector` finds."""
        part: dict[str, Any] = {}
        if selector:
            box = f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            box += " return {x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height, scale: 1}; })()"
            part = {"clip": self.run(box), "captureBeyondViewport": True}
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", **part)["data"])

    def requests(self) -> list[str]:
        """The addresses that were asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Exceptions, errors and warnings of the page and of the browser about it."""
        found = []
        for event in self.events:
            said = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(str(said["exceptionDetails"]))
                case "Runtime.consoleAPICalled":
                    found.append(f"{said['type']}: {[a.get('value') for a in said['args']]}")
                case "Log.entryAdded":
                    found.append(f"{said['entry']['level']}: {said['entry']['text']}")
        return found
