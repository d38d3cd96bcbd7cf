"""The book from the command line: `python -m ctlib.book build`, `run`, `publish`."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import click
import nbformat

from ctlib.book.build import BuildError, book_records, build, is_current
from ctlib.book.claims import Claim, LedgerError, Record, audit, read_ledger
from ctlib.book.places import Book, find_root
from ctlib.book.published import publish, read_published, write_published
from ctlib.book.records import read_notebook, records_of
from ctlib.book.runs import ChapterError, run
from ctlib.book.store import store


@click.group()
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder of the book.")
@click.pass_context
def main(context: click.Context, root: Path | None) -> None:
    """Run the chapters, hold them against the ledger, build the pages."""
    context.obj = Book((root or find_root()).resolve())


@main.command("build")
@click.pass_obj
def build_command(book: Book) -> None:
    """Build the book; what has not changed is neither run nor rendered again."""
    records = build(book, click.echo)
    click.echo(claims_table(records, read_ledger(book.ledger)))
    click.echo(f"\nThe book: {book.html / 'index.html'}")


@main.command("run")
@click.argument("chapter")
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.pass_obj
def run_command(book: Book, chapter: str, parameters: tuple[str, ...]) -> None:
    """Run one chapter (02 is enough of its name) with other parameters and hold it against its claims."""
    source = book.chapter(chapter)
    output = book.root / "_build" / "runs" / source.name
    record = run(book, source, output, dict(_parameter(text) for text in parameters))
    records = records_of(read_notebook(output), source.stem)
    claims = {name: claim for name, claim in read_ledger(book.ledger).items() if claim.chapter == source.stem}
    click.echo(claims_table(records, claims))
    problems = audit(records, claims)
    if problems:
        raise BuildError("The run and the ledger disagree:", problems)
    click.echo(f"\n{record['seconds']:.0f} s, {record['megabytes']} MB; the executed notebook: {output}")


@main.command("publish")
@click.pass_obj
def publish_command(book: Book) -> None:
    """Write the numbers of the last build to data/published.json."""
    stale = [chapter.stem for chapter in book.chapters() if not is_current(book, chapter)]
    if stale:
        raise BuildError("Build the book first; these runs are not current:", stale)
    old = read_published(book.published)
    write_published(book.published, publish(book_records(book), read_ledger(book.ledger), old))
    click.echo(f"written: {book.published}")


@main.command("store")
@click.argument("notebooks", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def store_command(notebooks: tuple[Path, ...]) -> None:
    """Bring chapters into the form in which they are stored: no outputs, and first how to install the library."""
    for path in notebooks:
        notebook = read_notebook(path)
        store(notebook)
        nbformat.write(notebook, path)


@main.command("browser")
def browser_command() -> None:
    """See to it that there is a Chromium for the tests of the pages and for the PDF."""
    from ctlib.book.browser import install_browser  # needs tests/requirements.txt, as does pdf

    click.echo(f"browser: {install_browser(click.echo)}")


@main.command("pdf")
@click.pass_obj
def pdf_command(book: Book) -> None:
    """Print the book that was built as one PDF."""
    from ctlib.book.pdf import write_pdf

    click.echo(f"\nThe PDF: {write_pdf(book, click.echo)}")


def _parameter(text: str) -> tuple[str, Any]:
    """`seed=7` as ("seed", 7); what is no Python literal is taken as a word."""
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def claims_table(records: list[Record], claims: dict[str, Claim]) -> str:
    """What was claimed and what was measured, one line a claim."""
    values = {record.key: record.value for record in records}
    width = max([len(name) for name in claims], default=0)
    lines = [f"\n{'claim':<{width}}  {'kind':<10}{'measured':>10}{'bound':>10}{'broken':>10}"]
    for name, claim in claims.items():
        measured, broken = (values.get(f"{name}.{part}") for part in ("measured", "broken"))
        shown = ["-" if value is None else f"{value:.1e}" for value in (measured, claim.bound, broken)]
        lines.append(f"{name:<{width}}  {claim.kind:<10}" + "".join(f"{text:>10}" for text in shown))
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        main(prog_name="python -m ctlib.book")
    except (BuildError, ChapterError, LedgerError, LookupError, OSError, RuntimeError, ValueError) as error:
        click.echo(f"\n{error}", err=True)
        sys.exit(1)
