"""A headless browser for tests of pages: it opens them at an exact size and theme, and shows what a reader sees.

It is driven over its debugging pipe, so that a test needs neither a network port nor a library.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-sync", "--remote-debugging-pipe", "--font-render-hinting=none",
    "--force-device-scale-factor=1", "--disable-dev-shm-usage",
)  # fmt: skip
_DECODE = """(async () => {
  const picture = new Image();
  picture.src = "data:image/png;base64,%s";
  await picture.decode();
  const canvas = document.createElement("canvas"), size = [picture.width, picture.height];
  [canvas.width, canvas.height] = size;
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  const bytes = context.getImageData(0, 0, ...size).data;
  let values = "";
  for (let i = 0; i < bytes.length; i += 8192) { values += String.fromCharCode(...bytes.subarray(i, i + 8192)); }
  return [...size, btoa(values)];
})()"""


class Browser:
    """One open page of a running browser."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._number, self._session = process, 0, ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable")

    def open(self, page: Path | str, width: int, height: int = 800, theme: str = "light") -> None:
        """Open a page or an address in a window of this size, in a light or dark theme and without animations."""
        features = [("prefers-color-scheme", theme), ("prefers-reduced-motion", "reduce")]
        self._call("Emulation.setEmulatedMedia", features=[{"name": name, "value": value} for name, value in features])
        self._resize(width, height)
        self._call("Page.navigate", url="about:blank")  # an address that differs in its fragment only would not load
        self._call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        self.evaluate(
            "new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))"
        )

    def evaluate(self, script: str) -> Any:
        """Evaluate an expression in the page, which may be a promise, and return its value."""
        options = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self._call("Runtime.evaluate", **options)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait_for(self, condition: str, seconds: float = 30) -> None:
        """Wait until an expression is true in the page."""
        end = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < end, f"not true in {seconds} s: {condition}"
            time.sleep(0.05)

    def press(self, key: str, *, ctrl: bool = False, shift: bool = False) -> None:
        """Press a key on the focused element, as a keyboard does: a letter, or a name such as ``Tab``."""
        codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 and not ctrl else "")
        event = {
            "key": key,
            "windowsVirtualKeyCode": codes.get(key, ord(key.upper()[0])),
            "modifiers": 2 * ctrl + 8 * shift,
        }
        self._call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **event)
        self._call("Input.dispatchKeyEvent", type="keyUp", **event)

    def drag(self, selector: str, dx: float, steps: int = 5) -> None:
        """Drag the middle of an element sideways."""
        box = self.evaluate(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect(); "
            f"return [b.left + b.width / 2, b.top + b.height / 2]; }})(document.querySelector({json.dumps(selector)}))"
        )
        x, y = box
        self._mouse("mousePressed", x, y)
        for step in range(1, steps + 1):
            self._mouse("mouseMoved", x + dx * step / steps, y)
        self._mouse("mouseReleased", x + dx, y)

    def _mouse(self, kind: str, x: float, y: float) -> None:
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def take_picture(self, height: int | None = None, scale: float = 1) -> bytes:
        """Take a picture of the page from its top, as PNG; without a ``height`` of the whole page."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        high = min(size["height"], height or size["height"])
        clip = {"x": 0, "y": 0, "width": size["width"], "height": high, "scale": scale}
        picture = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(picture["data"])

    def decode_picture(self, picture: bytes) -> tuple[int, int, bytes]:
        """Decode a picture to its width, its height and its RGBA values, in an empty page."""
        self._call("Page.navigate", url="about:blank")
        width, height, values = self.evaluate(_DECODE % base64.b64encode(picture).decode())
        return width, height, base64.b64decode(values)

    def _resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, skip the events, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        self._process.stdin.flush()
        while True:
            answer = json.loads(self._read_message())
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _read_message(self) -> bytes:
        assert self._process.stdout is not None
        parts = bytearray()
        while (byte := self._process.stdout.read(1)) != b"\0":
            assert byte, "the browser has ended"
            parts += byte
        return bytes(parts)


@contextmanager
def start_browser() -> Iterator[Browser]:
    """Start a browser with an empty profile, and end it afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [str(CHROMIUM), *_OPTIONS, f"--user-data-dir={profile}"]
        # The browser reads commands from file descriptor 3 and writes answers to 4.
        pipes = 'exec "$@" 3<&0 4>&1 0</dev/null 1>&2'
        process = subprocess.Popen(
            ["sh", "-c", pipes, "sh", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield Browser(process)
        finally:
            process.kill()
            process.wait()
