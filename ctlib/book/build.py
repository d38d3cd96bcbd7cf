"""From sources to a book: run what changed, hold the runs against the ledger, render strictly, swap in the result."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from ctlib.book.claims import Record, audit, parse_ledger
from ctlib.book.keys import chapter_key
from ctlib.book.places import Book
from ctlib.book.records import PlaceholderError, read_notebook, records_of
from ctlib.book.runs import ChapterError, check_parameters, run
from ctlib.book.stage import make_stage, stage_key

SECONDS, MEGABYTES = 60, 1200  # what one chapter may need before the build remarks on it
_LOG_LINE = re.compile(r"(?P<page>\S+\.(?:ipynb|md))(?::(?P<line>\d+))?: (?P<text>(?:WARNING|ERROR|CRITICAL|SEVERE).*)")


class BuildError(RuntimeError):
    """The book could not be built; `problems` says why, one line each."""

    def __init__(self, what: str, problems: list[str]):
        self.problems = problems
        super().__init__("\n".join([what, *(f"  - {problem}" for problem in problems)]))


def build(book: Book, say: Callable[[str], None] = print) -> list[Record]:
    """Bring `book.html` up to date and return all records; on any failure the last good book stays as it is."""
    claims, problems = parse_ledger(book.ledger.read_text(encoding="utf-8"))
    if problems:
        raise BuildError("data/claims.yml is not in order:", problems)
    run_chapters(book, say)
    records = book_records(book)
    problems = audit(records, claims)
    if problems:
        raise BuildError("The runs and the ledger disagree:", problems)
    try:
        make_stage(book)
    except PlaceholderError as error:
        raise BuildError("A figure's text could not be filled:", [str(error)]) from error
    render(book, say)
    return records


def book_records(book: Book) -> list[Record]:
    """The records of all executed chapters, in reading order."""
    return [
        record
        for chapter in book.chapters()
        for record in records_of(read_notebook(book.executed / chapter.name), chapter.stem)
    ]


def is_current(book: Book, chapter: Path) -> bool:
    """Whether the stored run of a chapter is one of just these sources."""
    stored = book.executed / chapter.name
    return stored.is_file() and read_notebook(stored).metadata.get("run", {}).get("key") == chapter_key(book, chapter)


def run_chapters(book: Book, say: Callable[[str], None]) -> None:
    """Run every chapter whose stored run is not current, as many at a time as there are cores."""
    chapters = book.chapters()
    problems = []
    for chapter in chapters:
        try:
            check_parameters(chapter, {})
        except (ChapterError, ValueError) as error:
            problems.append(str(error))
    if problems:
        raise BuildError("Not every chapter can be run:", problems)
    stale = [chapter for chapter in chapters if not is_current(book, chapter)]
    for chapter in chapters:
        say(f"{chapter.stem}: {'to be run' if chapter in stale else 'unchanged, its run is kept'}")
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        jobs = {
            threads.submit(run, book, chapter, book.executed / chapter.name, key=chapter_key(book, chapter)): chapter
            for chapter in stale
        }
        for job in as_completed(jobs):
            try:
                record = job.result()
            except ChapterError as error:
                problems.append(str(error))
                say(f"{jobs[job].stem}: FAILED")
                continue
            say(f"{record['chapter']}: ran in {record['seconds']:.0f} s, {record['megabytes']} MB")
            if record["seconds"] > SECONDS or record["megabytes"] > MEGABYTES:
                say(f"{record['chapter']}: heavier than a chapter should be ({SECONDS} s, {MEGABYTES} MB)")
    if problems:
        raise BuildError("Not every chapter ran through:", sorted(problems))


def render(book: Book, say: Callable[[str], None]) -> None:
    """Turn the stage into pages with every warning an error; swap them in only when there was none."""
    key = stage_key(book)
    stamp = book.html / ".key"
    if stamp.is_file() and stamp.read_text() == key:
        say("pages: unchanged")
        return
    say("pages: building")
    scratch = book.root / "_build" / "new"
    shutil.rmtree(scratch, ignore_errors=True)
    program = Path(sys.executable).with_name("jupyter-book")
    result = subprocess.run(
        [program, "build", book.stage, "-W", "-n", "--keep-going", "--path-output", scratch],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
    )
    problems = _problems(result.stdout, book.stage)
    if "Executing notebook" in result.stdout:
        problems.append("a notebook was executed while the pages were built")
    if result.returncode and not problems:
        problems = result.stdout.strip().splitlines()[-15:]
    if problems:
        raise BuildError("The pages could not be built:", problems)
    fresh = scratch / "_build" / "html"
    (fresh / ".key").write_text(key)
    previous = scratch / "previous"
    if book.html.is_dir():
        os.replace(book.html, previous)
    os.replace(fresh, book.html)
    shutil.rmtree(scratch)


def _problems(log: str, stage: Path) -> list[str]:
    """The warnings of a build log, with pages named from the root and notebook lines as cell and line."""
    problems = []
    for line in log.splitlines():
        match = _LOG_LINE.search(line)
        if match:
            page = match["page"].removeprefix(f"{stage}/")
            cell, row = divmod(int(match["line"] or 0), 10000)
            where = f"{page}, cell {cell}, line {row}" if cell else f"{page}, line {row}" if row else page
            problems.append(f"{where}: {match['text']}")
        elif re.match(r"(WARNING|ERROR|CRITICAL)\b", line):
            problems.append(line)
    return list(dict.fromkeys(problems))
