"""The stage: the book's sources as Sphinx sees them, with the executed chapters in place of the sources."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

import nbformat
import yaml

from ctlib.book.keys import PACKAGE, file_hash
from ctlib.book.places import Book
from ctlib.book.records import fill_captions, read_notebook

_PAGE_ENDINGS = (".md", ".ipynb")


def make_stage(book: Book) -> None:
    """Build the stage afresh from the pages of _toc.yml, the assets, and the executed chapters."""
    shutil.rmtree(book.stage, ignore_errors=True)
    book.stage.mkdir(parents=True)
    config = yaml.safe_load((book.root / "_config.yml").read_text(encoding="utf-8"))
    config.setdefault("execute", {})["execute_notebooks"] = "off"  # what is published is the run that was checked
    (book.stage / "_config.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    for name in ("_toc.yml", "references.bib", "data/claims.yml"):
        if (book.root / name).is_file():
            _copy(book.root / name, book.stage / name)
    if (book.root / "assets").is_dir():
        shutil.copytree(book.root / "assets", book.stage / "assets")
    chapters = {chapter.relative_to(book.root): chapter for chapter in book.chapters()}
    for chapter in chapters.values():
        notebook = read_notebook(book.executed / chapter.name)
        fill_captions(notebook, chapter.stem)
        (book.stage / "chapters").mkdir(exist_ok=True)
        nbformat.write(notebook, book.stage / "chapters" / chapter.name)
    for page in _page_files(book):
        if page.relative_to(book.root) not in chapters:
            _copy(page, book.stage / page.relative_to(book.root))


def _page_files(book: Book) -> Iterable[Path]:
    for page in book.pages():
        candidates = [book.root / name for name in (page, *(page + end for end in _PAGE_ENDINGS))]
        found = [path for path in candidates if path.is_file()]
        if not found:
            raise FileNotFoundError(f"_toc.yml names {page}, but there is no {page}.md or {page}.ipynb")
        yield found[0]


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def stage_key(book: Book) -> str:
    """The hash of all that decides how the built pages look: the stage, the pins, the extension that renders it."""
    files = [path for path in sorted(book.stage.rglob("*")) if path.is_file()]
    files += sorted(book.root.glob("requirements*.txt")) + sorted((PACKAGE / "book").glob("*.py"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name} {path.parent.name} {file_hash(path)}\n".encode())
    return digest.hexdigest()
