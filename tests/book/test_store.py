"""How chapters are stored, and what a chapter needs that runs away from the book."""

import os
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from ctlib.book.places import Book, data_file, find_root
from ctlib.book.records import read_notebook
from ctlib.book.store import INSTALL, fill_address, store

BOOK = Book(find_root())
MEGABYTES = 1200


@pytest.mark.parametrize("chapter", BOOK.chapters(), ids=lambda chapter: chapter.stem)
def test_a_chapter_is_stored_as_the_hook_would_store_it(chapter):
    notebook = read_notebook(chapter)
    before = nbformat.writes(notebook)
    store(notebook)
    assert nbformat.writes(notebook) == before


def test_storing_takes_outputs_away_and_says_first_how_to_install():
    notebook = new_notebook(cells=[new_code_cell("1 + 1", outputs=[new_output("stream", text="2")], execution_count=3)])
    store(notebook)
    first, second = notebook.cells
    assert first.source == INSTALL and all(line.startswith("#") for line in INSTALL.splitlines())
    assert second.source == "1 + 1" and second.outputs == [] and second.execution_count is None
    fill_address(notebook, "https://github.com/someone/book")
    assert "--depth 1 https://github.com/someone/book companion" in first.source


@pytest.mark.parametrize("chapter", BOOK.chapters(), ids=lambda chapter: chapter.stem)
def test_a_chapter_needs_little_memory(chapter):
    assert read_notebook(BOOK.executed / chapter.name).metadata["run"]["megabytes"] <= MEGABYTES


def test_data_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no nothing\.txt in"):
        data_file("nothing.txt")


def test_a_downloaded_chapter_runs_where_the_library_is_installed(tmp_path):
    """Installed as a package beside nothing else of the book, in a folder that is not the book's."""
    packages = tmp_path / "packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-build-isolation", "--target", packages, BOOK.root]
    subprocess.run(command, check=True, capture_output=True)
    notebook = read_notebook(BOOK.chapter("14"))
    notebook.cells.append(new_code_cell("import ctlib; print(ctlib.__file__)"))
    nbformat.write(notebook, tmp_path / "chapter.ipynb")
    ran = subprocess.run(
        [sys.executable, "-m", "papermill", "--cwd", tmp_path, tmp_path / "chapter.ipynb", tmp_path / "ran.ipynb"],
        env=os.environ | {"PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert read_notebook(tmp_path / "ran.ipynb").cells[-1].outputs[0].text.startswith(str(packages))
