# SPDX-License-Identifier: MIT
"""Headless Chromium, steered through a pipe: nothing listens, and nothing of it is kept.

What it receives and sends is the DevTools protocol, one JSON object after the other with a NUL between them.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from rig.parts import find_program

OPTIONS = (
    "--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync",
    "--disable-default-apps", "--hide-scrollbars", "--mute-audio",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1, EXCLUDE localhost",
)  # fmt: skip
# A cold start on a busy machine has taken over 30 s.
ANSWER_WITHIN_S = 150.0


class Browser:
    """`requests`: addresses of everything that pages asked for. `complaints`: what they wrote to the console."""

    def __init__(self, profile: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()
        as_root = ("--no-sandbox",) if os.geteuid() == 0 else ()
        words = [
            str(find_program("chromium")),
            *OPTIONS,
            *as_root,
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        self._child = subprocess.Popen(
            ["/bin/bash", "-c", f'exec "$0" "$@" 3<&{ours[0]} 4>&{theirs[1]}', *words],
            pass_fds=(ours[0], theirs[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(profile), "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._into, self._out = ours[1], theirs[0]
        self._heard = b""
        self._number = 0
        self._session = ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        # The pages that are there, by the numbers of their navigations.
        self._loaded: set[str] = set()
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._send(f"{domain}.enable")
        self._send("Page.setLifecycleEventsEnabled", enabled=True)

    def send_header(self, name: str, value: str) -> None:
        """Send a header with all requests from now on."""
        self._send("Network.setExtraHTTPHeaders", headers={name: value})

    def screenshot(self) -> bytes:
        """What is seen now, as PNG."""
        return base64.b64decode(self._send("Page.captureScreenshot", format="png")["data"])

    def open(
        self, page: Path | str, *, width: int = 1200, is_dark: bool = False, media: str = "screen"
    ) -> None:
        """Load a file, or an address of this host, and wait until it is there."""
        self.requests, self.complaints = [], []
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._send("Emulation.setEmulatedMedia", media=media, features=[scheme])
        navigation = self._send("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        deadline_s = time.monotonic() + ANSWER_WITHIN_S
        while navigation["loaderId"] not in self._loaded:
            self._note(self._next(deadline_s))

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self._send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release `Tab` or `Enter`."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r")}[key]
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}
        self._send("Input.dispatchKeyEvent", type="keyDown", **about)
        self._send("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Write into what has the focus."""
        self._send("Input.insertText", text=text)

    def close(self) -> None:
        os.close(self._into)
        os.close(self._out)
        self._child.terminate()
        try:
            self._child.wait(60)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _send(self, method: str, **params: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._into, json.dumps(message).encode() + b"\0")
        deadline_s = time.monotonic() + ANSWER_WITHIN_S
        while True:
            said = self._next(deadline_s)
            if said.get("id") == self._number:
                assert "error" not in said, said
                return said["result"]
            self._note(said)

    def _note(self, said: dict[str, Any]) -> None:
        params = said.get("params", {})
        match said.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params))
            case "Page.lifecycleEvent" if params["name"] == "load":
                self._loaded.add(params["loaderId"])

    def _next(self, deadline_s: float) -> dict[str, Any]:
        while b"\0" not in self._heard:
            left_s = deadline_s - time.monotonic()
            ready, _, _ = select.select([self._out], [], [], max(0.0, left_s))
            assert ready, "the browser does not answer"
            heard = os.read(self._out, 1 << 20)
            assert heard, "the browser has ended"
            self._heard += heard
        message, _, self._heard = self._heard.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found
