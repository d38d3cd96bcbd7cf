"""Every chapter: stored clean, its numbers as published, its claims true for another seed as well."""

import pytest

from ctlib.book.build import is_current
from ctlib.book.claims import audit, read_ledger
from ctlib.book.keys import chapter_key
from ctlib.book.places import Book, find_root
from ctlib.book.published import differences, read_published
from ctlib.book.records import numbered_cells, read_notebook, records_of
from ctlib.book.runs import run

BOOK = Book(find_root())
LINES = 40

pytestmark = pytest.mark.parametrize("chapter", BOOK.chapters(), ids=lambda chapter: chapter.stem)


def own_claims(chapter):
    return {name: claim for name, claim in read_ledger(BOOK.ledger).items() if claim.chapter == chapter.stem}


def test_chapter_is_stored_clean(chapter):
    notebook = read_notebook(chapter)
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in notebook.cells) == 1
    for number, cell in numbered_cells(notebook):
        where = f"{chapter.stem}, cell {number}"
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None, f"{where} is stored with outputs"
            assert cell.source.strip(), f"{where} is empty"
            assert len(cell.source.splitlines()) <= LINES, f"{where} has more than {LINES} lines"


def test_numbers_are_the_published_ones(chapter, tmp_path):
    executed = BOOK.executed / chapter.name
    if not is_current(BOOK, chapter):
        executed = tmp_path / chapter.name
        run(BOOK, chapter, executed, key=chapter_key(BOOK, chapter))
    records = records_of(read_notebook(executed), chapter.stem)
    assert audit(records, own_claims(chapter)) == []
    assert differences(records, read_published(BOOK.published), chapter.stem) == []


def test_claims_hold_for_another_seed(chapter, tmp_path):
    output = tmp_path / chapter.name
    run(BOOK, chapter, output, {"seed": 7})
    assert audit(records_of(read_notebook(output), chapter.stem), own_claims(chapter)) == []
