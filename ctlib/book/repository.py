"""Where the book's repository is: asked of git or of the environment, never written down."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

_GITHUB = re.compile(
    r"(?:https?://|ssh://)?(?:[^@/]+@)?github\.com[:/](?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(?:\.git)?/?"
)


@dataclass(frozen=True)
class Repository:
    """A repository on GitHub at one branch (or tag, or commit), and the addresses that follow from it."""

    owner: str
    name: str
    branch: str

    @property
    def address(self) -> str:
        return f"https://github.com/{self.owner}/{self.name}"

    @property
    def site(self) -> str:
        """Where GitHub Pages puts the book."""
        home = f"{self.owner}.github.io".lower()
        return f"https://{home}/" if self.name.lower() == home else f"https://{home}/{self.name}/"

    def binder(self, path: str) -> str:
        """The address that opens a file of the repository in JupyterLab on Binder."""
        return (
            f"https://mybinder.org/v2/gh/{self.owner}/{self.name}/{quote(self.branch, safe='')}"
            f"?labpath={quote(path, safe='')}"
        )

    def colab(self, path: str) -> str:
        """The address that opens a notebook of the repository in Colab."""
        return f"https://colab.research.google.com/github/{self.owner}/{self.name}/blob/{self.branch}/{quote(path)}"


def find_repository(root: Path) -> Repository | None:
    """The repository that the checkout at `root` comes from, or None where there is none on GitHub.

    `BOOK_REPOSITORY` (an address) and `BOOK_BRANCH` come before the remote `origin` and the branch that is checked out;
    a detached checkout is named by its commit. A `BOOK_REPOSITORY` that isn't on GitHub raises `ValueError`.
    """
    given = os.environ.get("BOOK_REPOSITORY", "")
    match = _GITHUB.fullmatch(given or _git(root, "remote", "get-url", "origin"))
    if match is None:
        if given:
            raise ValueError(f"BOOK_REPOSITORY is {given!r}; expected an address like https://github.com/owner/name")
        return None
    branch = os.environ.get("BOOK_BRANCH") or _git(root, "symbolic-ref", "--short", "HEAD")
    return Repository(match["owner"], match["name"], branch or _git(root, "rev-parse", "HEAD") or "main")


def _git(root: Path, *arguments: str) -> str:
    """What a git command prints; nothing where it fails, or where `root` isn't the top of a checkout."""
    try:
        if not (root / ".git").exists():
            return ""
        return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:  # git isn't installed
        return ""
