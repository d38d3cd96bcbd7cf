"""The Sphinx side of the ledger: four directives that print what was claimed, what was measured, and at what cost.

    ```{ledger}             every claim by section of the paper, with bound and measurements (the page claims.md)
    ```{checked-here}       the claims of the chapter it stands in
    ```{chapter-facts}      time and memory of the chapter's run, and with `:needs:` what to read first
    ```{execution-report}   one line a chapter: time, memory, versions, processor, date

All of them read the notebooks that are being rendered: a chapter without outputs shows its claims as not measured.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from ctlib.book.claims import SECTIONS, Claim, read_ledger
from ctlib.book.places import Book
from ctlib.book.records import read_notebook, records_of


@lru_cache(maxsize=64)
def _read(path: Path, _modified: int) -> tuple[dict[str, Any], dict[str, Any]]:
    notebook = read_notebook(path)
    values = {record.key: record.value for record in records_of(notebook, path.stem)}
    return values, dict(notebook.metadata.get("run", {}))


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

    def executed(self, chapter: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """The recorded values and the record of the run of a chapter; both empty where it has not been run."""
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
                found += [self.card(claim, self.executed(chapters[claim.chapter])[0]) for claim in own]
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
    """What a chapter costs to run, from the record of its run, and what to read first."""

    option_spec: ClassVar = {"needs": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        _, record = self.executed(self.book.root / f"{self.env.docname}.ipynb")
        facts = []
        if record:
            facts.append(f"**Runs in** {record['seconds']:.0f} s on one thread")
            facts.append(f"**Peak memory** {record['megabytes']} MB")
        if "needs" in self.options:
            facts.append(f"**Needs** {self.options['needs']}")
        return [self.parsed(" · ".join(facts), "chapter-facts")] if facts else []


class ExecutionReport(BookDirective):
    """The run that is published: one line a chapter."""

    def run(self) -> list[nodes.Node]:
        rows = [
            "| chapter | seconds | memory (MB) | Python | torch | processor | date |",
            "|:--|--:|--:|:--|:--|:--|:--|",
        ]
        for chapter in self.book.chapters():
            _, record = self.executed(chapter)
            keys = ("seconds", "megabytes", "python", "torch", "processor", "date")
            cells = [str(record.get(key, "not run")) for key in keys]
            rows.append(f"| {{doc}}`/chapters/{chapter.stem}` | {' | '.join(cells)} |")
        return [self.parsed("\n".join(rows), "execution-report")]


def _shown(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1e}"


def _without_thebe(app: Sphinx, _config: object) -> None:
    """Silence sphinx-thebe (live cells), which Jupyter Book always loads and which needs a server on the network."""
    app.registry.css_files[:] = [file for file in app.registry.css_files if file[0] != "sphinx-thebe.css"]
    for listeners in app.events.listeners.values():
        listeners[:] = [listener for listener in listeners if listener.handler.__module__ != "sphinx_thebe"]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("ledger", Ledger)
    app.add_directive("checked-here", CheckedHere)
    app.add_directive("chapter-facts", ChapterFacts)
    app.add_directive("execution-report", ExecutionReport)
    app.connect("config-inited", _without_thebe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
