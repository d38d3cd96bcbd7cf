"""Running one chapter: it comes out whole with its record, or it names the cell that stopped it."""

import pytest
from stub import make_book, write_chapter

from ctlib.book.places import Book
from ctlib.book.records import read_notebook
from ctlib.book.runs import ChapterError, check_parameters, run


@pytest.fixture
def small(tmp_path) -> Book:
    return make_book(tmp_path)


def test_a_run_carries_its_record_and_its_parameters(small):
    write_chapter(small, "01-one", "print(seed)\nimport pathlib\nprint(pathlib.Path('data/claims.yml').is_file())")
    output = small.root / "out" / "one.ipynb"
    record = run(small, small.chapter("01"), output, {"seed": 7}, key="abc")
    notebook = read_notebook(output)
    assert notebook.metadata["run"] == record
    assert record["key"] == "abc" and record["parameters"] == {"seed": 7}
    assert record["seconds"] > 0 and 20 < record["megabytes"] < 1000
    assert "".join(o.text for cell in notebook.cells for o in cell.get("outputs", [])) == "7\nTrue\n"
    assert "papermill" not in notebook.metadata
    assert [path.name for path in output.parent.iterdir()] == ["one.ipynb"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("\n1 / 0", r"01-one, cell 3 \('1 / 0'\): ZeroDivisionError: division by zero"),
        ("import os\nos.kill(os.getpid(), 9)", r"01-one, cell 3 \('import os'\): the kernel died"),
        (
            "import warnings\nwarnings.warn('careful')",
            r"cell 3 \('import warnings'\): prints to stderr: .*careful",
        ),
        ("import time\ntime.sleep(60)", r"01-one, cell 3 \('import time'\): still running after 2 s"),
    ],
)
def test_a_run_that_stops_names_the_cell_and_leaves_nothing(small, code, message):
    write_chapter(small, "01-one", code, "print('never')")
    output = small.root / "out" / "one.ipynb"
    with pytest.raises(ChapterError, match=message):
        run(small, small.chapter("01"), output, {"seed": 7}, cell_seconds=2)
    assert list(output.parent.iterdir()) == []


def test_a_misspelt_parameter_is_named_with_the_known_ones(small):
    with pytest.raises(ChapterError, match="01-one: no parameter is called 'sed'; the parameters are seed"):
        run(small, small.chapter("01"), small.root / "out.ipynb", {"sed": 7})


def test_a_chapter_needs_a_parameters_cell(small):
    chapter = small.chapter("01")
    chapter.write_text(chapter.read_text().replace("parameters", "other"), encoding="utf-8")
    with pytest.raises(ChapterError, match="01-one: 0 cells are tagged `parameters`"):
        check_parameters(chapter, {})
