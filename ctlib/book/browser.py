"""A headless Chromium: for the tests of the built pages and for the PDF."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync"]


class BrowserError(RuntimeError):
    """No Chromium is to be had; the message says what was tried and what to do."""


def find_browser() -> str | None:
    """The path of a Chromium or Chrome: on the PATH, otherwise playwright's own; None where there is neither."""
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).is_file() else None


def install_browser(say: Callable[[str], None]) -> str:
    """Install a Chromium where there is none: from the system's packages as root, otherwise through playwright."""
    attempts = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    if shutil.which("apt-get") and os.geteuid() == 0:
        apt = (
            "apt-get update --quiet=2 && apt-get install --yes --quiet=2 --no-install-recommends chromium fonts-dejavu"
        )
        attempts.insert(0, ["sh", "-c", apt])
    tried = []
    while (found := find_browser()) is None:
        if not attempts:
            raise BrowserError(
                "\n".join(
                    [
                        "No Chromium was found, and none could be installed:",
                        *tried,
                        "The tests of the pages and the PDF need one. Install Chromium or Chrome, so that `chromium` "
                        "or `google-chrome` is on the PATH, and call make again.",
                    ]
                )
            )
        command = attempts.pop(0)
        say(f"No Chromium on this machine yet: {' '.join(command[-1:] if command[0] == 'sh' else command[1:])}")
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        tried.append(f"  - {' '.join(command)}: {(result.stdout.strip().splitlines() or ['no output'])[-1][:200]}")
    return found


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A headless Chromium, closed at the end; raises `BrowserError` where there is none."""
    path = find_browser()
    if path is None:
        raise BrowserError("No Chromium on this machine: python -m ctlib.book browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_QUIET)
        try:
            yield browser
        finally:
            browser.close()
