"""The whole book as one PDF: all pages in one document, typeset and printed by Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pypdf
from playwright.sync_api import Page

from ctlib.book.browser import open_browser
from ctlib.book.build import BuildError
from ctlib.book.places import Book

_FOOTER = '<p style="font-size:8px;width:100%;text-align:center"><span class="pageNumber"></span></p>'
_COLUMN = {"width": 665, "height": 1000}  # what the margins leave of A4, in CSS pixels
_PASSES = 3  # the contents may grow by a page when the numbers are filled in


def write_pdf(book: Book, say: Callable[[str], None]) -> Path:
    """Print the stage of the last build to `_build/book.pdf`; a failure leaves an earlier PDF as it is."""
    target = book.root / "_build" / "book.pdf"
    scratch = book.root / "_build" / "pdf"
    shutil.rmtree(scratch, ignore_errors=True)
    say("pdf: all pages in one")
    program = Path(sys.executable).with_name("jupyter-book")
    result = subprocess.run(
        [program, "build", book.stage, "--builder", "singlehtml", "--path-output", scratch],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    pages = list(scratch.rglob("index.html"))
    if result.returncode or not pages:
        raise BuildError("The pages could not be put into one:", result.stdout.strip().splitlines()[-15:])
    with open_browser() as browser:
        page = browser.new_page(viewport=_COLUMN)
        page.emulate_media(media="print")
        page.goto(pages[0].as_uri())
        page.evaluate("MathJax.startup.promise.then(() => null)")
        entries = page.evaluate(_PREPARE)
        printed = scratch / "book.pdf"
        numbers: list[int] = []
        for _ in range(_PASSES):
            say("pdf: printing")
            _print(page, printed)
            found = _page_numbers(printed, entries)
            if found == numbers:
                break
            numbers = found
            page.evaluate(_FILL_IN, numbers)
        else:
            raise BuildError("The page numbers of the contents did not settle", [])
    printed.replace(target)
    shutil.rmtree(scratch)
    return target


def _print(page: Page, path: Path) -> None:
    page.pdf(
        path=path,
        format="A4",
        margin={"top": "18mm", "bottom": "18mm", "left": "17mm", "right": "17mm"},
        display_header_footer=True,
        header_template="<span></span>",
        footer_template=_FOOTER,
        outline=True,
        tagged=True,
        print_background=True,
    )


def _page_numbers(path: Path, entries: list[str]) -> list[int]:
    """The page, from 1, on which each anchor of the contents stands."""
    reader = pypdf.PdfReader(path)
    places = reader.named_destinations
    missing = [anchor for anchor in entries if f"/{anchor}" not in places and anchor not in places]
    if missing:
        raise BuildError("Places of the contents are not in the PDF:", missing)
    return [reader.get_destination_page_number(places.get(f"/{anchor}") or places[anchor]) + 1 for anchor in entries]


#: Keeps the article alone, puts a title and the contents in front of it, and returns the anchors of the contents.
_PREPARE = r"""() => {
  const article = document.querySelector("article.bd-article"), title = document.title;
  document.documentElement.dataset.theme = "light";
  document.body.replaceChildren(article);
  for (const gone of article.querySelectorAll("button, .headerlink, .chapter-facts .way, .toctree-wrapper > p.caption"))
    gone.remove();
  for (const fold of article.querySelectorAll("details")) fold.open = true;
  for (const hidden of article.querySelectorAll(".toggle-hidden, .frame[hidden]")) {
    hidden.classList.remove("toggle-hidden"); hidden.hidden = false;
  }
  const contents = document.createElement("nav");
  contents.className = "contents";
  const anchors = [];
  for (const heading of article.querySelectorAll("h1, h2")) {
    const id = `place-${anchors.length}`, entry = document.createElement("a");
    heading.insertAdjacentHTML("afterbegin", `<span id="${id}"></span>`);
    entry.href = "#" + id;
    entry.className = heading.tagName;
    entry.innerHTML = `<span></span><span class="page"></span>`;
    entry.firstChild.append(...[...heading.childNodes].map(node => node.cloneNode(true)));
    for (const inner of entry.querySelectorAll("[id]")) inner.removeAttribute("id");
    contents.append(entry);
    anchors.push(id);
  }
  article.insertAdjacentElement("beforebegin", contents);
  contents.insertAdjacentHTML("beforebegin", `<p class="book-title">${title}</p>`);
  document.head.insertAdjacentHTML("beforeend", `<style>
    html { font-size: 10.5pt; scroll-padding: 0; }
    .book-title { font-size: 2.6rem; font-weight: 700; margin: 40vh 0 0; line-height: 1.2; break-after: page; }
    .contents { break-after: page; } .contents a { display: flex; justify-content: space-between; gap: 1rem; color: inherit;
      text-decoration: none; } .contents a.H1 { font-weight: 700; margin-top: .5rem; } .contents a.H2 { padding-left: 1.2rem; }
    article h1 { break-before: page; } h1, h2, h3 { break-after: avoid; }
    figure, .claim, .ledger-claim, mjx-container, img, tr { break-inside: avoid; }
    pre { white-space: pre-wrap !important; overflow-wrap: anywhere; } div.math, .pst-scrollable-table-container { overflow: hidden; }
    img { max-height: 21cm; } .time-step label, .frames label { display: none !important; }
  </style>`);
  for (const box of article.querySelectorAll("div.math, table, pre"))
    if (box.scrollWidth > box.parentElement.clientWidth + 1)
      box.style.zoom = box.parentElement.clientWidth / box.scrollWidth;
  return anchors;
}"""

_FILL_IN = """numbers => document.querySelectorAll(".contents .page").forEach((place, i) => {
  place.textContent = numbers[i];
})"""
