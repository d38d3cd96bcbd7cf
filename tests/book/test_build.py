"""Building a small book: what stops it, what it keeps, and what it does not do twice."""

import pytest
from stub import claim, make_book, record, write_chapter, write_ledger

from ctlib.book.build import BuildError, build
from ctlib.book.places import Book


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Book:
    """A small book that has been built once."""
    book = make_book(tmp_path_factory.mktemp("book"))
    build(book, lambda line: None)
    return book


@pytest.fixture
def small(built: Book):
    """The built book; whatever a test changes in its sources is taken back."""
    files = [built.ledger, *built.root.glob("*.*"), *built.root.glob("chapters/*"), *built.executed.iterdir()]
    before = {path: path.read_bytes() for path in files if path.is_file()}
    yield built
    for path, content in before.items():
        path.write_bytes(content)


def state(folder) -> dict:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def refused(book: Book) -> str:
    """The message of a build that must fail; the last good book must stay as it is."""
    before = state(book.html)
    assert before
    with pytest.raises(BuildError) as caught:
        build(book, lambda line: None)
    assert state(book.html) == before
    return str(caught.value)


def test_pages_carry_the_numbers_of_the_run(small):
    assert "1.0e-03" in (small.html / "intro.html").read_text()
    ledger = (small.html / "claims.html").read_text()
    assert 'id="first"' in ledger and "Broken twin, adds a thousandth: <strong>1.0e-03" in ledger


def test_nothing_is_done_twice(small):
    before, said = state(small.html) | state(small.executed), []
    build(small, said.append)
    assert state(small.html) | state(small.executed) == before
    assert said == [f"{stem}: unchanged, its run is kept" for stem in ("01-one", "02-two")] + ["pages: unchanged"]


def test_a_failing_cell_stops_the_build_and_keeps_the_other_run(small):
    write_chapter(small, "01-one", "1 / 0")
    write_chapter(small, "02-two", record("second"), "print('changed')")
    assert "01-one, cell 3 ('1 / 0'): ZeroDivisionError" in refused(small)
    assert "changed" in (small.executed / "02-two.ipynb").read_text()


def test_a_killed_kernel_stops_the_build(small):
    write_chapter(small, "01-one", "import os", "os.kill(os.getpid(), 9)")
    assert "01-one, cell 4 ('os.kill(os.getpid(), 9)'): the kernel died" in refused(small)


def test_a_claim_out_of_bound_and_a_passing_twin_stop_the_build(small):
    write_chapter(small, "01-one", record("first", measured=1.0))
    write_chapter(small, "02-two", "pass", record("second", broken=0.0))
    message = refused(small)
    assert "01-one, cell 3: claim first: measured 1.000e+00 exceeds the bound 1.0e-14 (two roundings)" in message
    assert "02-two, cell 4: claim second: the broken twin (adds a thousandth) gives 0.000e+00, within" in message


def test_a_ledger_out_of_order_stops_the_build(small):
    write_ledger(small, claim("first", "01-one", kind="guess"), claim("second", "02-two"))
    assert "claim first: kind 'guess'" in refused(small)


def test_a_missing_reference_or_number_stops_the_build(small):
    write_chapter(small, "02-two", record("second"), text="See {eq}`nowhere`.")
    (small.root / "intro.md").write_text("# Stub\n\n{glue:text}`chapters/01-one.ipynb::absent:.1e`\n", encoding="utf-8")
    lines = refused(small).splitlines()
    assert any("chapters/02-two.ipynb, cell 4" in line and "nowhere" in line for line in lines), lines
    assert any("intro.md, line 3" in line and "absent" in line for line in lines), lines


def test_a_chapter_without_parameters_stops_the_build(small):
    chapter = small.chapter("02")
    chapter.write_text(chapter.read_text().replace("parameters", "other"), encoding="utf-8")
    assert "02-two: 0 cells are tagged `parameters`" in refused(small)
