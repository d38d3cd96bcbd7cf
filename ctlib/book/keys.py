"""What a chapter's run depends on, as one hash: while the key stays, the run is still valid."""

from __future__ import annotations

import ast
import hashlib
import json
import platform
from functools import lru_cache
from pathlib import Path

import nbformat
import yaml

from ctlib.book.places import Book

PACKAGE = Path(__file__).resolve().parents[1]


def chapter_key(book: Book, chapter: Path, package: Path = PACKAGE) -> str:
    """The hash of a chapter, the modules of the library it imports, its claims, its data, the pins and the Python.

    `package` is the folder of the library: only imports from it are followed.
    """
    code = chapter.read_text(encoding="utf-8")
    modules = imported_modules(_cells(code), package)
    sources = {str(path.relative_to(package)): path.read_text(encoding="utf-8") for path in sorted(modules)}
    texts = [code, *sources.values()]
    parts = {
        "chapter": code,
        "library": sources,
        "claims": [entry for entry in _ledger_entries(book) if entry.get("chapter") == chapter.stem],
        "data": {str(path.relative_to(book.root)): file_hash(path) for path in _data_files(book, texts)},
        "pins": {path.name: path.read_text(encoding="utf-8") for path in sorted(book.root.glob("requirements*.txt"))},
        "python": platform.python_version(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def imported_modules(source: str, package: Path) -> set[Path]:
    """The files of `package` that running `source` can import, directly or through one another.

    Found without running anything, from import statements and from strings that are a module's full name, so a
    lazy import by name counts as well.
    """
    found: set[Path] = set()
    todo = [path for name in _names(source, "") for path in _module_files(name, package)]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.add(path)
        folder = ".".join((package.name, *path.relative_to(package).parent.parts))
        todo += [file for name in _names(path.read_text("utf-8"), folder) for file in _module_files(name, package)]
    return found


@lru_cache(maxsize=256)
def _names(source: str, folder: str) -> tuple[str, ...]:
    """Full dotted names that a source text may import; `folder` is the package its relative imports start from."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = folder.split(".")
                base = ".".join(parents[: len(parents) - node.level + 1] + ([base] if base else []))
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.append(node.value)
    return tuple(names)


def _module_files(name: str, package: Path) -> list[Path]:
    """The files that `import name` runs in `package`: the module and the packages around it."""
    head, *parts = name.split(".")
    if head != package.name or not all(part.isidentifier() for part in parts):
        return []
    files, folder = [package / "__init__.py"], package
    for part in parts:
        files += [folder / f"{part}.py", folder / part / "__init__.py"]
        folder = folder / part
    return [file for file in files if file.is_file()]


def _cells(notebook: str) -> str:
    """The code of a notebook as one Python text, without IPython's own lines."""
    cells = [cell.source for cell in nbformat.reads(notebook, as_version=4).cells if cell.cell_type == "code"]
    return "\n".join(line for line in "\n".join(cells).splitlines() if not line.lstrip().startswith(("%", "!")))


def _ledger_entries(book: Book) -> list[dict]:
    entries = yaml.safe_load(book.ledger.read_text(encoding="utf-8")) or []
    return [entry for entry in entries if isinstance(entry, dict)]


def _data_files(book: Book, texts: list[str]) -> list[Path]:
    """The files under data/ whose names occur in one of the texts; the ledger and the published numbers are apart."""
    files = [path for path in sorted((book.root / "data").rglob("*")) if path.is_file()]
    return [
        path for path in files if path not in (book.ledger, book.published) and any(path.name in text for text in texts)
    ]


def file_hash(path: Path) -> str:
    """The hash of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
