"""Where things are: the root of the book and what lies under it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

_MARKS = ("_config.yml", "_toc.yml", "data/claims.yml")


def find_root(start: Path | None = None) -> Path:
    """The root of the book that `start` (the working directory) lies in, otherwise of the checkout ctlib comes from."""
    start = Path.cwd() if start is None else Path(start).resolve()
    for folder in (start, *start.parents, Path(__file__).resolve().parents[2]):
        if all((folder / mark).is_file() for mark in _MARKS):
            return folder
    raise FileNotFoundError(f"no book here: {start} has no folder above it with {', '.join(_MARKS)}")


def data_file(name: str) -> Path:
    """A file of data/: of the book around the working directory, otherwise the copy that is installed with ctlib."""
    try:
        folder = find_root() / "data"
    except FileNotFoundError:
        folder = Path(__file__).resolve().parents[1] / "data"
    if not (folder / name).is_file():
        raise FileNotFoundError(f"no {name} in {folder}")
    return folder / name


@dataclass(frozen=True)
class Book:
    """The files and folders of one book."""

    root: Path

    @property
    def ledger(self) -> Path:
        return self.root / "data" / "claims.yml"

    @property
    def published(self) -> Path:
        return self.root / "data" / "published.json"

    @property
    def executed(self) -> Path:
        """One notebook with outputs and one record (.json) a chapter: the runs that are published."""
        return self.root / "_build" / "executed"

    @property
    def stage(self) -> Path:
        """The sources as Sphinx sees them: pages, assets and the executed chapters."""
        return self.root / "_build" / "stage"

    @property
    def html(self) -> Path:
        """The last good book."""
        return self.root / "_build" / "html"

    def pages(self) -> list[str]:
        """Every file that _toc.yml names, in reading order, as `intro` or `chapters/01-…` (no ending)."""
        return list(_files(yaml.safe_load((self.root / "_toc.yml").read_text(encoding="utf-8"))))

    def chapters(self) -> list[Path]:
        """The notebooks under chapters/ that _toc.yml names, in reading order."""
        found = [self.root / f"{page.removesuffix('.ipynb')}.ipynb" for page in self.pages() if "chapters/" in page]
        for chapter in found:
            if not chapter.is_file():
                raise FileNotFoundError(f"_toc.yml names {chapter.relative_to(self.root)}, which does not exist")
        return found

    def chapter(self, name: str) -> Path:
        """The one chapter whose file name starts with `name`: `04` or `04-layer-normalisation`."""
        found = [chapter for chapter in self.chapters() if chapter.stem.startswith(name)]
        if len(found) != 1:
            known = ", ".join(chapter.stem for chapter in self.chapters())
            raise LookupError(f"{name!r} names {len(found)} chapters; the chapters are {known}")
        return found[0]


def _files(entry):
    """All `file:` and `root:` values of a nested table of contents, in order."""
    if isinstance(entry, list):
        for item in entry:
            yield from _files(item)
    elif isinstance(entry, dict):
        for key, value in entry.items():
            if key in ("root", "file"):
                yield value
            else:
                yield from _files(value)
