"""Placeholders in captions and alternative texts."""

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from ctlib.book.records import PlaceholderError, fill, fill_captions, numbered_cells, records_of

PREFIX = "application/papermill.record/text/plain"


def test_placeholders_take_recorded_values():
    assert fill("gap {{gap:.1e}}, {{ name }}", {"gap": 1.5e-7, "name": "f64"}) == "gap 1.5e-07, f64"


@pytest.mark.parametrize("text", ["{{absent:.1e}}", "{{name:.1e}}"])
def test_what_cannot_be_filled_is_named(text):
    with pytest.raises(PlaceholderError, match=text.strip("{}").split(":")[0]):
        fill(text, {"name": "f64"})


def test_captions_and_alternative_texts_are_filled():
    glued = new_output("display_data", data={PREFIX: "0.25"}, metadata={"scrapbook": {"name": "gap"}})
    options = {"figure": {"caption": "gap {{gap:.2f}}"}, "image": {"alt": "a gap of {{gap:.0%}}"}}
    notebook = new_notebook(cells=[new_code_cell(outputs=[glued]), new_code_cell(metadata={"mystnb": options})])
    fill_captions(notebook, "01-one")
    assert notebook.cells[1].metadata.mystnb == {"figure": {"caption": "gap 0.25"}, "image": {"alt": "a gap of 25%"}}
    notebook.cells[1].metadata.mystnb.image.alt = "{{other}}"
    with pytest.raises(PlaceholderError, match="01-one, cell 2, alt of the figure"):
        fill_captions(notebook, "01-one")


def test_glued_tables_are_no_records_and_nan_is_one():
    outputs = [
        new_output("display_data", data={PREFIX: text}, metadata={"scrapbook": {"name": name}})
        for name, text in (("table", "<IPython.core.display.HTML object>"), ("bad", "nan"), ("word", "'f64'"))
    ]
    found = records_of(new_notebook(cells=[new_code_cell(outputs=outputs)]), "01-one")
    assert [record.key for record in found] == ["bad", "word"]


def test_an_injected_cell_does_not_move_the_numbers():
    cells = [new_code_cell("a"), new_code_cell("b", metadata={"tags": ["injected-parameters"]}), new_code_cell("c")]
    assert [(number, cell.source) for number, cell in numbered_cells(new_notebook(cells=cells))][2] == (2, "c")
