"""Small books for the tests: chapters that run in a second and need nothing of the library."""

from pathlib import Path
from typing import Any

import nbformat
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from ctlib.book.places import Book

KERNEL = {
    "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
    "language_info": {"name": "python"},
}
RECORD = """\
from myst_nb import glue
glue("{id}.measured", {measured}, display=False)
glue("{id}.broken", {broken}, display=False)"""


def claim(name: str, chapter: str, **changes: Any) -> dict[str, Any]:
    """A ledger entry in good order."""
    return {
        "id": name,
        "statement": "The sum $1 + 1$ is two.",
        "where": "this book",
        "section": "new",
        "kind": "exact",
        "chapter": chapter,
        "bound": 1e-14,
        "why": "two roundings",
        "broken": "adds a thousandth",
    } | changes


def write_chapter(book: Book, stem: str, *code: str, text: str = "The end.") -> None:
    """A chapter: title, parameters cell, the code cells given, and a closing text."""
    cells = [new_markdown_cell(f"# Chapter {stem}"), new_code_cell("seed = 1", metadata={"tags": ["parameters"]})]
    cells += [new_code_cell(source) for source in code]
    cells.append(new_markdown_cell(text))
    for place, cell in enumerate(cells):
        cell["id"] = f"cell-{place}"
    nbformat.write(new_notebook(metadata=KERNEL, cells=cells), book.root / "chapters" / f"{stem}.ipynb")


def record(name: str, measured: float = 0.0, broken: float = 1e-3) -> str:
    """The code of a check cell that does not import the library."""
    return RECORD.format(id=name, measured=measured, broken=broken)


def write_ledger(book: Book, *claims: dict[str, Any]) -> None:
    """The ledger with just these claims."""
    book.ledger.write_text(yaml.safe_dump(list(claims), sort_keys=False), encoding="utf-8")


def make_book(root: Path) -> Book:
    """A book of two good chapters, each with one claim."""
    book = Book(root)
    for folder in ("chapters", "data"):
        (root / folder).mkdir(parents=True)
    config = {
        "title": "stub",
        "only_build_toc_files": True,
        "repository": {"url": ""},
        "sphinx": {"extra_extensions": ["sphinx-mathjax-offline", "ctlib.book.sphinx"], "recursive_update": True},
    }
    (root / "_config.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    toc = {"format": "jb-book", "root": "intro", "chapters": [{"file": f"chapters/{s}"} for s in ("01-one", "02-two")]}
    toc["chapters"].append({"file": "claims"})
    (root / "_toc.yml").write_text(yaml.safe_dump(toc), encoding="utf-8")
    (root / "intro.md").write_text("# Stub\n\n{glue:text}`chapters/01-one.ipynb::first.broken:.1e`\n", encoding="utf-8")
    (root / "claims.md").write_text("# Claims\n\n```{ledger}\n```\n\n```{execution-report}\n```\n", encoding="utf-8")
    (root / "requirements.txt").write_text("torch\n", encoding="utf-8")
    write_ledger(book, claim("first", "01-one"), claim("second", "02-two"))
    write_chapter(book, "01-one", record("first"))
    write_chapter(book, "02-two", record("second"), text="```{checked-here}\n```")
    return book
