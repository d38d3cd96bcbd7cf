"""The address of the repository: where it comes from, and what a book says with one and without."""

import subprocess
from urllib.parse import unquote

import pytest
import yaml
from bs4 import BeautifulSoup
from stub import make_book

from ctlib.book.build import build
from ctlib.book.places import Book, find_root
from ctlib.book.records import read_notebook
from ctlib.book.repository import Repository, find_repository
from ctlib.book.stage import make_stage

ADDRESSES = [
    "https://github.com/someone/some.book",
    "https://github.com/someone/some.book.git",
    "https://github.com/someone/some.book/",
    "https://token@github.com/someone/some.book.git",
    "git@github.com:someone/some.book.git",
    "ssh://git@github.com/someone/some.book.git",
]


@pytest.fixture(autouse=True)
def no_address_given(monkeypatch):
    for name in ("BOOK_REPOSITORY", "BOOK_BRANCH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def checkout(tmp_path):
    """A checkout with one commit on the branch `a/b`, and no remote."""
    for command in (
        ["init", "--quiet", "--initial-branch=a/b"],
        ["-c", "user.name=x", "-c", "user.email=x", "commit", "--quiet", "--allow-empty", "--message=x"],
    ):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    return tmp_path


def git(root, *arguments: str) -> str:
    return subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_remote_and_the_branch_are_read_from_git(checkout, address):
    git(checkout, "remote", "add", "origin", address)
    assert find_repository(checkout) == Repository("someone", "some.book", "a/b")


def test_a_detached_checkout_is_named_by_its_commit(checkout):
    git(checkout, "remote", "add", "origin", ADDRESSES[0])
    git(checkout, "checkout", "--quiet", "--detach")
    assert find_repository(checkout).branch == git(checkout, "rev-parse", "HEAD")


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_environment_comes_before_git(checkout, monkeypatch, address):
    git(checkout, "remote", "add", "origin", "https://github.com/another/one")
    monkeypatch.setenv("BOOK_REPOSITORY", address)
    monkeypatch.setenv("BOOK_BRANCH", "v1")
    assert find_repository(checkout) == Repository("someone", "some.book", "v1")


@pytest.mark.parametrize("remote", [None, "../elsewhere", "https://example.org/someone/some.book"])
def test_without_an_address_on_github_there_is_none(checkout, remote):
    if remote:
        git(checkout, "remote", "add", "origin", remote)
    assert find_repository(checkout) is None


def test_no_checkout_has_no_address(tmp_path):
    assert find_repository(tmp_path) is None


@pytest.mark.parametrize("given", ["someone/some.book", "https://example.org/a/b", "https://github.com/someone"])
def test_an_address_that_cannot_be_used_is_refused(tmp_path, monkeypatch, given):
    monkeypatch.setenv("BOOK_REPOSITORY", given)
    with pytest.raises(ValueError, match="expected an address like"):
        find_repository(tmp_path)


def test_addresses_that_follow_from_it():
    place = Repository("Some-One", "book", "a/b")
    assert place.site == "https://some-one.github.io/book/"
    assert Repository("One", "one.github.io", "main").site == "https://one.github.io/"
    assert place.binder("chapters/01 x.ipynb").endswith("/gh/Some-One/book/a%2Fb?labpath=chapters%2F01%20x.ipynb")
    assert place.colab("chapters/01 x.ipynb").endswith("/github/Some-One/book/blob/a/b/chapters/01%20x.ipynb")


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A small book built with an address."""
    book = make_book(tmp_path_factory.mktemp("book"))
    config = yaml.safe_load((book.root / "_config.yml").read_text())
    config["sphinx"]["extra_extensions"].append("notfound.extension")
    (book.root / "_config.yml").write_text(yaml.safe_dump(config))
    chapter = book.root / "chapters" / "02-two.ipynb"
    chapter.write_text(chapter.read_text().replace("```{checked-here}", "```{chapter-facts}"), encoding="utf-8")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("BOOK_REPOSITORY", "https://github.com/someone/book")
        environment.setenv("BOOK_BRANCH", "main")
        build(book, lambda line: None)
    return book


def test_buttons_lead_to_files_of_the_repository(published):
    page = BeautifulSoup((published.html / "chapters" / "02-two.html").read_text(), "html.parser")
    ways = {link.text: link["href"] for link in page.select("a.way")}
    assert list(ways) == ["Run on Binder", "Open in Colab", "Download the notebook"]
    place = Repository("someone", "book", "main")
    for name, start in (("Run on Binder", place.binder("")), ("Open in Colab", place.colab(""))):
        assert ways[name].startswith(start)
        assert (published.root / unquote(ways[name].removeprefix(start))).is_file()
    assert (published.html / "chapters" / ways["Download the notebook"]).resolve().is_file()


def test_a_site_has_a_map_a_preview_and_a_page_for_what_is_missing(published):
    site = "https://someone.github.io/book/"
    assert f"<loc>{site}chapters/02-two.html</loc>" in (published.html / "sitemap.xml").read_text()
    page = BeautifulSoup((published.html / "intro.html").read_text(), "html.parser")
    assert page.find("meta", property="og:url")["content"] == site + "intro.html"
    assert page.find("meta", property="og:title") and page.find("link", rel="canonical")["href"] == site + "intro.html"
    missing = BeautifulSoup((published.html / "404.html").read_text(), "html.parser")
    assert {link["href"].startswith("/book/") for link in missing.select("link[rel=stylesheet][href]")} == {True}


def test_the_chapters_of_this_book_say_where_to_install_from(monkeypatch, tmp_path):
    real = Book(find_root())
    monkeypatch.setenv("BOOK_REPOSITORY", "https://github.com/someone/book")
    staged = Book(tmp_path)
    for name in ("_config.yml", "_toc.yml", "chapters", "data", "assets"):
        (tmp_path / name).symlink_to(real.root / name)
    for page in real.pages():
        if not page.startswith("chapters/"):
            (tmp_path / f"{page}.md").symlink_to(real.root / f"{page}.md")
    (tmp_path / "_build").mkdir()
    (tmp_path / "_build" / "executed").symlink_to(real.executed)
    make_stage(staged)
    for chapter in staged.chapters():
        first = read_notebook(staged.stage / "chapters" / chapter.name).cells[0].source
        assert "https://github.com/someone/book companion" in first and "ADDRESS" not in first


def test_without_an_address_a_chapter_has_no_button_but_its_download(published, tmp_path):
    book = make_book(tmp_path / "book")
    chapter = book.root / "chapters" / "02-two.ipynb"
    text = (published.root / "chapters" / "02-two.ipynb").read_text(encoding="utf-8")
    chapter.write_text(text, encoding="utf-8")
    build(book, lambda line: None)
    page = BeautifulSoup((book.html / "chapters" / "02-two.html").read_text(), "html.parser")
    assert [link.text for link in page.select("a.way")] == ["Download the notebook"]
    assert "github.com" not in str(page.find("article")) and not (book.html / "sitemap.xml").exists()
