"""The stage: the book's sources as Sphinx sees them, with the executed chapters in place of the sources."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
import yaml

from ctlib.book.keys import PACKAGE, file_hash
from ctlib.book.places import Book
from ctlib.book.records import fill_captions, read_notebook
from ctlib.book.repository import Repository, find_repository
from ctlib.book.store import fill_address

_PAGE_ENDINGS = (".md", ".ipynb")


def make_stage(book: Book) -> None:
    """Build the stage afresh from the pages of _toc.yml, the assets, and the executed chapters."""
    shutil.rmtree(book.stage, ignore_errors=True)
    book.stage.mkdir(parents=True)
    repository = find_repository(book.root)
    config = yaml.safe_dump(_config(book, repository), sort_keys=False)
    (book.stage / "_config.yml").write_text(config, encoding="utf-8")
    for name in ("_toc.yml", "references.bib", "data/claims.yml", "CITATION.cff"):
        if (book.root / name).is_file():
            _copy(book.root / name, book.stage / name)
    if (book.root / "assets").is_dir():
        shutil.copytree(book.root / "assets", book.stage / "assets")
    chapters = {chapter.relative_to(book.root): chapter for chapter in book.chapters()}
    for chapter in chapters.values():
        notebook = read_notebook(book.executed / chapter.name)
        fill_captions(notebook, chapter.stem)
        if repository:
            fill_address(notebook, repository.address)
        (book.stage / "chapters").mkdir(exist_ok=True)
        nbformat.write(notebook, book.stage / "chapters" / chapter.name)
    for page in _page_files(book):
        if page.relative_to(book.root) not in chapters:
            _copy(page, book.stage / page.relative_to(book.root))


def _config(book: Book, repository: Repository | None) -> dict[str, Any]:
    """The book's settings, without execution, and with what follows from the address of the repository."""
    config = yaml.safe_load((book.root / "_config.yml").read_text(encoding="utf-8"))
    config.setdefault("execute", {})["execute_notebooks"] = "off"  # what is published is the run that was checked
    if repository:
        config["repository"] = {"url": repository.address, "branch": repository.branch}
        config.setdefault("html", {}).update(
            baseurl=repository.site, use_repository_button=True, use_issues_button=True
        )
        sphinx = config.setdefault("sphinx", {})
        sphinx.setdefault("extra_extensions", []).extend(["sphinx_sitemap", "sphinxext.opengraph"])
        sphinx.setdefault("config", {}).update(
            book_repository=asdict(repository),
            sitemap_url_scheme="{link}",
            notfound_urls_prefix=urlsplit(repository.site).path,
            ogp_site_url=repository.site,
        )
    return config


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
