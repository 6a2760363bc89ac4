"""Chromium, and someone who looks at the site with it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def missing() -> str:
    """What is not installed; empty where all is there."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{absent[0]} is not installed: apt-get install chromium chromium-driver" if absent else ""


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A headless Chromium that records requests and console messages; ``profile`` is an empty folder for its own files."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    flags = (
        "headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking",
        "disable-component-update", "disable-sync", f"user-data-dir={profile}",
    )  # fmt: skip
    for flag in flags:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    window.set_script_timeout(120)
    try:
        yield window
    finally:
        window.quit()


class Reader:
    """Someone who looks at the site."""

    def __init__(self, window: Any, built: Path) -> None:
        self.window = window
        self.built = built

    def screen(self, width: int, *, dark: bool = False, scripts: bool = True) -> None:
        command = self.window.execute_cdp_cmd
        command(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        command("Emulation.setEmulatedMedia", {"features": [scheme]})
        command("Emulation.setScriptExecutionDisabled", {"value": not scripts})

    def open(self, page: str) -> None:
        self.window.get("about:blank")
        self.window.get_log("browser"), self.window.get_log("performance")
        self.window.get(f"{self.built.as_uri()}/{page}")
        # On a busy machine Chromium may come back before a page's scripts have run.
        self.wait("location.protocol === 'file:' && document.readyState === 'complete'")

    def js(self, body: str, *arguments: Any) -> Any:
        return self.window.execute_script(body, *arguments)

    def wait(self, condition: str, seconds: float = 10) -> None:
        end = time.monotonic() + seconds
        while not self.js(f"return Boolean({condition})"):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.05)

    def draw_all(self) -> int:
        """Scroll every visible chart into view, and wait until it is drawn, unless it is a still one."""
        for number in range(self.js("return document.querySelectorAll('.chart:not(.fixed)').length")):
            chart = f"document.querySelectorAll('.chart:not(.fixed)')[{number}]"
            self.js(f"{chart}.scrollIntoView()")
            self.wait(f"!{chart}.offsetParent || {chart}.querySelector('.main-svg')")
        return int(
            self.js("return [...document.querySelectorAll('.chart.drawn')].filter((c) => c.offsetParent).length")
        )

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.window.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        events = [json.loads(entry["message"])["message"] for entry in self.window.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def press(self, key: str, times: int = 1) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        # Until a page has been drawn, Chromium drops what is typed.
        self.window.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        for _ in range(times):
            ActionChains(self.window).send_keys(key).perform()
