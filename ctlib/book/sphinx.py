"""The Sphinx side of the book: directives that print what was claimed, what was measured, and at what cost.

    ```{ledger}             every claim by section of the paper, with bound and measurements (the page claims.md)
    ```{checked-here}       the claims of the chapter it stands in
    ```{chapter-facts}      time to read and to run, memory, with `:needs:` what to read first, and where to run it
    ```{execution-report}   one line a chapter: time, memory, claims, and the versions, processor and date of the run
    ```{how-to-cite}        the entry of CITATION.cff, as BibTeX

The first four read the notebooks that are being rendered: a chapter without outputs shows its claims as not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any, ClassVar

import yaml
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from ctlib.book.claims import SECTIONS, Claim, read_ledger
from ctlib.book.places import Book
from ctlib.book.records import read_notebook, records_of
from ctlib.book.repository import Repository
from ctlib.book.runs import VERSIONS

WORDS_A_MINUTE = 200  # of prose and code alike


@dataclass(frozen=True)
class Executed:
    """What a page can say of an executed chapter: its values, the record of its run, the words there are to read."""

    values: dict[str, Any]
    run: dict[str, Any]
    words: int


@lru_cache(maxsize=64)
def _read(path: Path, _modified: int) -> Executed:
    notebook = read_notebook(path)
    values = {record.key: record.value for record in records_of(notebook, path.stem)}
    words = sum(len(cell.source.split()) for cell in notebook.cells)
    return Executed(values, dict(notebook.metadata.get("run", {})), words)


class BookDirective(SphinxDirective):
    """A directive that writes MyST text from the ledger and from the chapters' runs."""

    has_content = False

    @property
    def book(self) -> Book:
        return Book(Path(self.env.srcdir))

    @property
    def chapter(self) -> str:
        return self.env.docname.rpartition("/")[2]

    def claims(self) -> list[Claim]:
        self.env.note_dependency(str(self.book.ledger))
        return list(read_ledger(self.book.ledger).values())

    def executed(self, chapter: Path) -> Executed:
        """What is known of a chapter; its values and the record of its run are empty where it has not been run."""
        self.env.note_dependency(str(chapter))
        return _read(chapter, chapter.stat().st_mtime_ns)

    def link(self, chapter: str, anchor: str = "") -> str:
        """The address of a chapter's page, seen from this page."""
        page = self.env.app.builder.get_relative_uri(self.env.docname, f"chapters/{chapter}")
        return f"{page}#{anchor}" if anchor else page

    def parsed(self, text: str, *classes: str, anchor: str = "") -> nodes.container:
        """MyST text as nodes, in a box with these classes and this anchor."""
        box = nodes.container(classes=list(classes), ids=[anchor] if anchor else [])
        box += self.parse_text_to_nodes(text)
        return box


class Ledger(BookDirective):
    """Every claim, by section of the paper, each in a box that the check lines of the chapters link to."""

    def run(self) -> list[nodes.Node]:
        claims, found = self.claims(), []
        chapters = {chapter.stem: chapter for chapter in self.book.chapters()}
        for section, title in SECTIONS.items():
            own = [claim for claim in claims if claim.section == section and claim.chapter in chapters]
            if own:
                found.append(self.parsed(title, "ledger-section"))
                own.sort(key=lambda claim: list(chapters).index(claim.chapter))
                found += [self.card(claim, self.executed(chapters[claim.chapter]).values) for claim in own]
        return found

    def card(self, claim: Claim, values: dict[str, Any]) -> nodes.container:
        measured, broken = (_shown(values.get(f"{claim.id}.{part}")) for part in ("measured", "broken"))
        anchor = f"check-{claim.id}"
        text = (
            f"**{claim.id}** {{bdg-primary-line}}`{claim.kind}`\n\n{claim.statement}\n\n"
            f"- Place: {claim.where}\n"
            f"- Chapter: {{doc}}`/chapters/{claim.chapter}`\n"
            f'- <a href="{self.link(claim.chapter, anchor)}">Measured</a>: **{measured}**\n'
            f"- Bound: {claim.bound:.1e}, because {claim.why}\n"
            f"- Broken twin, {claim.broken}: **{broken}**\n"
        )
        return self.parsed(text, "ledger-claim", anchor=claim.id)


class CheckedHere(BookDirective):
    """The claims of the chapter it stands in, each linked to its check and to its entry in the ledger."""

    def run(self) -> list[nodes.Node]:
        own = [claim for claim in self.claims() if claim.chapter == self.chapter]
        ledger = self.env.app.builder.get_relative_uri(self.env.docname, "claims")
        lines = [
            f'- {claim.statement} (<a href="#check-{claim.id}">checked above</a>, '
            f'<a href="{ledger}#{claim.id}">{claim.id}</a>)'
            for claim in own
        ]
        return [self.parsed("\n".join(lines), "checked-here")] if lines else []


class ChapterFacts(BookDirective):
    """What a chapter costs to read and to run, what to read first, and the ways to run it."""

    option_spec: ClassVar = {"needs": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        path = f"{self.env.docname}.ipynb"
        chapter = self.executed(self.book.root / path)
        facts = [f"**To read** {max(1, round(chapter.words / WORDS_A_MINUTE))} min"]
        if chapter.run:
            facts.append(f"**To run** {chapter.run['seconds']:.0f} s on one thread")
            facts.append(f"**Memory** {chapter.run['megabytes']} MB")
        if "needs" in self.options:
            facts.append(f"**Needs** {self.options['needs']}")
        sources = "../" * self.env.docname.count("/") + "_sources/"
        ways = {"Download the notebook": sources + path}
        if self.config.book_repository:
            repository = Repository(**self.config.book_repository)
            ways = {"Run on Binder": repository.binder(path), "Open in Colab": repository.colab(path)} | ways
        links = " ".join(f'<a class="way" href="{escape(address)}">{name}</a>' for name, address in ways.items())
        return [self.parsed(f"{' · '.join(facts)}\n\n{links}", "chapter-facts")]


class ExecutionReport(BookDirective):
    """The run that is published: one line a chapter, and what all of them ran with."""

    def run(self) -> list[nodes.Node]:
        rows = ["| chapter | claims | seconds | memory (MB) | date |", "|:--|--:|--:|--:|:--|"]
        claims, circumstances = self.claims(), {}
        for chapter in self.book.chapters():
            record = self.executed(chapter).run
            own = sum(claim.chapter == chapter.stem for claim in claims)
            cells = [str(record.get(key, "not run")) for key in ("seconds", "megabytes", "date")]
            rows.append(f"| {{doc}}`/chapters/{chapter.stem}` | {own} | {' | '.join(cells)} |")
            versions = [f"{name} {record[name]}" for name in VERSIONS if name in record]
            circumstances.setdefault(", ".join([*versions, record.get("processor", "not run")]), []).append(
                chapter.stem
            )
        seconds = sum(self.executed(chapter).run.get("seconds", 0) for chapter in self.book.chapters())
        total = f"| all | {len(claims)} | {seconds:.0f} | | |"
        lines = [
            f"{'All chapters' if len(circumstances) == 1 else 'Chapters ' + ', '.join(s[:2] for s in stems)}: {text}."
            for text, stems in circumstances.items()
        ]
        return [self.parsed("\n".join([*rows, total, "", *lines]), "execution-report")]


class HowToCite(BookDirective):
    """The book's entry of CITATION.cff, as BibTeX; the address is that of the site, where there is one."""

    def run(self) -> list[nodes.Node]:
        file = self.book.root / "CITATION.cff"
        self.env.note_dependency(str(file))
        entry = yaml.safe_load(file.read_text(encoding="utf-8"))
        fields = {
            "title": f"{{{entry['title']}}}",
            "author": " and ".join(f"{{{author['name']}}}" for author in entry["authors"]),
            "version": entry["version"],
            "license": entry["license"],
        }
        if self.config.book_repository:
            fields["url"] = Repository(**self.config.book_repository).site
        lines = "".join(f"  {name:<7} = {{{value}}},\n" for name, value in fields.items())
        return [self.parsed(f"```bibtex\n@software{{companion,\n{lines}}}\n```", "how-to-cite")]


def _shown(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1e}"


def _without_thebe(app: Sphinx, _config: object) -> None:
    """Silence sphinx-thebe (live cells), which Jupyter Book always loads and which needs a server on the network."""
    app.registry.css_files[:] = [file for file in app.registry.css_files if file[0] != "sphinx-thebe.css"]
    for listeners in app.events.listeners.values():
        listeners[:] = [listener for listener in listeners if listener.handler.__module__ != "sphinx_thebe"]


def _list_of_references(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: nodes.document | None
) -> None:
    """docutils calls the references a list of things that are no list items, which screen readers cannot follow."""
    if "body" in context:
        context["body"] = context["body"].replace(
            '<div role="list" class="citation-list">', '<div class="citation-list">'
        )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("ledger", Ledger)
    app.add_directive("checked-here", CheckedHere)
    app.add_directive("chapter-facts", ChapterFacts)
    app.add_directive("execution-report", ExecutionReport)
    app.add_directive("how-to-cite", HowToCite)
    app.add_config_value("book_repository", None, "env", [dict])
    app.connect("config-inited", _without_thebe)
    app.connect("html-page-context", _list_of_references)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
