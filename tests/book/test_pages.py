"""The built pages: every link leads somewhere, nothing comes from the network, nothing is left unfilled."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

from ctlib.book.claims import read_ledger
from ctlib.book.places import Book, find_root

BOOK = Book(find_root())
PAGES = [f"{Path(page).with_suffix('')}.html" for page in BOOK.pages()]
LOADING_LINKS = {"stylesheet", "icon", "shortcut", "preload", "modulepreload", "preconnect", "dns-prefetch"}
SOURCE_SIGNS = (
    "$",
    "{glue:",
    "{{",
    "}}",
    "{eq}",
    "{numref}",
    "{cite",
    "{prf:",
    "\\frac",
    "\\operatorname",
    "```",
    ":::",
)


@cache
def soup(path: Path) -> BeautifulSoup:
    assert path.is_file(), f"{path.relative_to(BOOK.root)} is not there: make book"
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def article(page: str) -> BeautifulSoup:
    return soup(BOOK.html / page).find("article", class_="bd-article")


def loaded(tree: BeautifulSoup) -> list[str]:
    """The addresses that a browser fetches in order to show a page."""
    found = [tag["src"] for tag in tree.find_all(["script", "img", "iframe", "source", "video"], src=True)]
    return found + [tag["href"] for tag in tree.find_all("link", href=True) if LOADING_LINKS & set(tag.get("rel", []))]


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_loaded_from_elsewhere(page):
    tree = soup(BOOK.html / page)
    assert [address for address in loaded(tree) if urlsplit(address).scheme not in ("", "data")] == []
    assert [address for address in loaded(tree) if address.startswith("//")] == []
    assert not any("import(" in script.text and "http" in script.text for script in tree.find_all("script"))


def test_style_sheets_load_nothing_from_elsewhere():
    for sheet in BOOK.html.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?\s*(https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


@pytest.mark.parametrize("page", PAGES)
def test_every_local_address_exists(page):
    here = BOOK.html / page
    tree = soup(here)
    for address in loaded(tree) + [tag["href"] for tag in tree.find_all("a", href=True)]:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or address in ("#", ""):
            continue
        target = (here.parent / unquote(parts.path)).resolve() if parts.path else here
        assert target.is_file(), f"{page} points to {address}"
        if parts.fragment and target.suffix == ".html":
            assert soup(target).find(id=unquote(parts.fragment)), f"{page} points to {address}: no such place"


@pytest.mark.parametrize("page", PAGES)
def test_no_source_is_left_in_the_text(page):
    tree = BeautifulSoup(str(article(page)), "html.parser")
    for element in tree.select("pre, code, script, .math"):
        element.decompose()
    for sign in (
        "$",
        "{glue:",
        "{{",
        "}}",
        "{eq}",
        "{numref}",
        "{cite",
        "{prf:",
        "\\frac",
        "\\operatorname",
        "```",
        ":::",
    ):
        assert sign not in tree.text, f"{page}: {sign} in …{tree.text.partition(sign)[0][-80:]}"


@pytest.mark.parametrize("page", PAGES)
def test_every_image_is_described(page):
    for image in article(page).find_all("img"):
        text = image.get("alt", "")
        assert len(text) > 10 and not re.search(r"\.(svg|png|jpe?g)$", text), f"{page}: {image.get('src')} has {text!r}"


@pytest.mark.parametrize("chapter", BOOK.chapters(), ids=lambda chapter: chapter.stem)
def test_every_chapter_shows_its_claims(chapter):
    own = {name for name, claim in read_ledger(BOOK.ledger).items() if claim.chapter == chapter.stem}
    shown = {line["id"].removeprefix("check-") for line in article(f"chapters/{chapter.stem}.html").select(".claim")}
    assert shown == own and own


def test_the_ledger_lists_every_claim():
    tree = article("claims.html")
    assert {box["id"] for box in tree.select(".ledger-claim")} == set(read_ledger(BOOK.ledger))
    assert "not measured" not in tree.text and "not run" not in tree.text
