"""What an executed chapter recorded: its glued values, read back from the notebook, and the texts they fill."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from myst_nb.ext.glue import GLUE_PREFIX

from ctlib.book.claims import Record

_PUT_IN = {"injected-parameters", "papermill-error-cell-tag"}
_PLACEHOLDER = re.compile(r"\{\{\s*(?P<key>[^{}:\s]+)\s*(?::(?P<format>[^{}]*))?\}\}")


class PlaceholderError(LookupError):
    """A text asks for a number that its chapter did not record, or for a format that does not fit."""


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """A notebook in format 4; an unreadable one raises `ValueError` with its name."""
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:
        raise ValueError(f"{path.name} is not a readable notebook: {error}") from error


def numbered_cells(notebook: nbformat.NotebookNode) -> Iterator[tuple[int, nbformat.NotebookNode]]:
    """The author's cells with their numbers from 1; a cell that papermill put in repeats the number before it."""
    number = 0
    for cell in notebook.cells:
        number += not _PUT_IN & set(cell.metadata.get("tags", []))
        yield number, cell


def records_of(notebook: nbformat.NotebookNode, chapter: str) -> list[Record]:
    """Every glued number or word of an executed notebook, in order; glued figures and tables are no records."""
    found = []
    for place, cell in numbered_cells(notebook):
        for output in cell.get("outputs", []):
            key = output.get("metadata", {}).get("scrapbook", {}).get("name")
            data = output.get("data", {})
            text = data.get(GLUE_PREFIX + "text/plain", data.get("text/plain"))
            value = None if key is None or text is None else _value(text)
            if value is not None:
                found.append(Record(chapter, place, key, value))
    return found


def _value(text: str) -> float | int | str | None:
    """The number or word whose `repr` is `text`; None for any other object."""
    if text in ("nan", "inf", "-inf"):
        return float(text)
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return None
    return value if isinstance(value, int | float | str) else None


def fill(text: str, values: dict[str, float | int | str]) -> str:
    """Replace every `{{key:format}}` of a text by that recorded value."""

    def value_of(match: re.Match) -> str:
        key, spec = match["key"], match["format"] or ""
        if key not in values:
            raise PlaceholderError(f"{match[0]}: nothing recorded under {key!r}")
        try:
            return format(values[key], spec)
        except ValueError as error:
            raise PlaceholderError(f"{match[0]}: {error}") from error

    return _PLACEHOLDER.sub(value_of, text)


def fill_captions(notebook: nbformat.NotebookNode, chapter: str) -> None:
    """Fill the placeholders in the captions and alternative texts of a chapter's figures, in place."""
    values = {record.key: record.value for record in records_of(notebook, chapter)}
    for place, cell in numbered_cells(notebook):
        options = cell.metadata.get("mystnb", {})
        for part, name in (("figure", "caption"), ("image", "alt")):
            if name in options.get(part, {}):
                try:
                    options[part][name] = fill(options[part][name], values)
                except PlaceholderError as error:
                    raise PlaceholderError(f"{chapter}, cell {place}, {name} of the figure: {error}") from error
