"""Drives a headless Chromium by its own protocol: opens pages, presses keys, and draws."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from waiting import eventually

START_WITHIN_S = 120.0
ANSWER_WITHIN_S = 60.0
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--force-device-scale-factor=1", "--remote-debugging-port=0",
)  # fmt: skip
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9}


class Tab:
    """One page in the browser. *errors* are what its scripts, or its content policy, complained
    of.
    """

    def __init__(
        self, session: aiohttp.ClientSession, root: str, socket: aiohttp.ClientWebSocketResponse
    ) -> None:
        self.errors: list[str] = []
        self._session = session
        self._root = root
        self._socket = socket
        self._number = 0

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[Tab]:
        """Yield a new and empty tab of the same browser."""
        async with self._session.put(f"{self._root}/json/new?about:blank") as answer:
            page = await answer.json()
        async with _connected(self._session, self._root, page) as tab:
            yield tab

    async def call(self, method: str, **fields: Any) -> dict[str, Any]:
        """Carry out one command of the protocol, and return its result."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": fields})
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while True:
                message = await self._socket.receive_json()
                if message.get("id") == self._number:
                    assert "error" not in message, message
                    return dict(message["result"])
                self._note(message)

    async def ask(self, script: str) -> Any:
        """Return the value of *script* in the page."""
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str) -> None:
        """Return once *script* is true in the page."""

        async def is_so() -> bool:
            return bool(await self.ask(script))

        await eventually(is_so, within_s=ANSWER_WITHIN_S, what=script)

    async def open(self, address: str, *, width: int, height: int, is_dark: bool = False) -> None:
        """Open *address* in a window of this size."""
        await self.call("Runtime.enable")
        await self.call("Log.enable")
        await self.call("Page.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme, still])
        await self.call("Page.navigate", url=address)

    async def press(self, key: str) -> None:
        """Press one key, as a person does."""
        fields: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": KEYS.get(key, 0)}
        if len(key) == 1:
            fields["text"] = key
        elif key == "Enter":
            fields["text"] = "\r"
        await self.call("Input.dispatchKeyEvent", type="keyDown", **fields)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def draw(self, picture: Path) -> None:
        """Write what is seen into *picture*."""
        found = await self.call("Page.captureScreenshot", format="png")
        picture.write_bytes(base64.b64decode(found["data"]))

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(message["params"]["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded":
            entry = message["params"]["entry"]
            if entry["level"] == "error":
                self.errors.append(f"{entry['text']} {entry.get('url', '')}")


@asynccontextmanager
async def browsing(program: str) -> AsyncIterator[Tab]:
    """Start the browser *program* with a new profile, and yield its tab."""
    # Not in the test's own folder: what a browser calls logs is no text for a failure's message.
    profile = Path(tempfile.mkdtemp(prefix="browser"))
    process = subprocess.Popen(
        [program, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    port_file = profile / "DevToolsActivePort"
    try:
        await eventually(
            lambda: port_file.exists() and "\n" in port_file.read_text(),
            within_s=START_WITHIN_S,
            what="a browser",
        )
        root = f"http://127.0.0.1:{port_file.read_text().splitlines()[0]}"
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{root}/json") as answer:
                pages = [each for each in await answer.json() if each["type"] == "page"]
            async with _connected(session, root, pages[0]) as tab:
                yield tab
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)
        shutil.rmtree(profile, ignore_errors=True)


@asynccontextmanager
async def _connected(
    session: aiohttp.ClientSession, root: str, page: dict[str, Any]
) -> AsyncIterator[Tab]:
    address = page["webSocketDebuggerUrl"]
    async with session.ws_connect(address, max_msg_size=MESSAGE_BYTES_MAX) as socket:
        yield Tab(session, root, socket)
