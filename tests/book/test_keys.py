"""What makes a chapter run again: what it depends on, and nothing else."""

from pathlib import Path

import pytest
from stub import claim, make_book, write_chapter, write_ledger

from ctlib.book.keys import chapter_key, imported_modules
from ctlib.book.places import Book

MODULES = {
    "__init__.py": "",
    "alone.py": "",
    "field.py": "import math",
    "sets.py": "from .field import Field",
    "deep/__init__.py": "",
    "deep/layer.py": "from .. import sets\nfrom .tools import help",
    "deep/tools.py": "TABLE = 'table.csv'",
    "lazy.py": "import importlib\nimportlib.import_module('lib.alone')",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, source in MODULES.items():
        (tmp_path / "lib" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lib" / name).write_text(source, encoding="utf-8")
    return tmp_path / "lib"


@pytest.fixture
def small(tmp_path: Path) -> Book:
    book = make_book(tmp_path / "book")
    write_chapter(book, "01-one", "from lib.deep.layer import x")
    write_chapter(book, "02-two", "import lib.field")
    for name in ("table.csv", "other.csv"):
        (book.root / "data" / name).write_text("1\n", encoding="utf-8")
    return book


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("import math", []),
        ("import lib.field", ["__init__", "field"]),
        ("from lib import sets", ["__init__", "field", "sets"]),
        ("from lib.deep import layer", ["__init__", "deep/__init__", "deep/layer", "deep/tools", "field", "sets"]),
        ("from lib.lazy import x", ["__init__", "alone", "lazy"]),
    ],
)
def test_imports_are_followed(package, source, modules):
    found = {str(path.relative_to(package).with_suffix("")) for path in imported_modules(source, package)}
    assert found == set(modules)


def rerun(book: Book, package: Path, change) -> list[str]:
    """The chapters whose key a change moves."""
    before = {chapter.stem: chapter_key(book, chapter, package) for chapter in book.chapters()}
    change()
    return [chapter.stem for chapter in book.chapters() if chapter_key(book, chapter, package) != before[chapter.stem]]


@pytest.mark.parametrize(
    ("file", "chapters"),
    [
        ("lib/deep/tools.py", ["01-one"]),
        ("lib/field.py", ["01-one", "02-two"]),
        ("lib/alone.py", []),
        ("book/data/table.csv", ["01-one"]),  # named in a module that 01-one imports
        ("book/data/other.csv", []),
        ("book/requirements.txt", ["01-one", "02-two"]),
        ("book/intro.md", []),
    ],
)
def test_a_changed_file_reruns_what_depends_on_it(small, package, file, chapters):
    path = package.parent / file
    assert rerun(small, package, lambda: path.write_text(path.read_text() + "\n# changed\n")) == chapters


def test_a_changed_claim_reruns_its_chapter_only(small, package):
    changed = [claim("first", "01-one"), claim("second", "02-two", bound=1e-13)]
    assert rerun(small, package, lambda: write_ledger(small, *changed)) == ["02-two"]


def test_a_changed_chapter_reruns_alone(small, package):
    assert rerun(small, package, lambda: write_chapter(small, "01-one", "x = 1")) == ["01-one"]


def test_published_numbers_rerun_nothing(small, package):
    assert rerun(small, package, lambda: small.published.write_text("{}", encoding="utf-8")) == []
