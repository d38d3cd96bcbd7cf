"""The built pages in a browser: whole without a network, from a folder and on a site, and light to load."""

import http.server
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pytest
from visits import BOOK, PAGES, Visit, open_file, visit

SLIDING = [page for page in PAGES if 'type="range"' in (BOOK.html / page).read_text(encoding="utf-8")]
WEIGHT = 700_000  # bytes of a page beyond what all pages share


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_without_a_network(page, name):
    assert open_file(page, name) == Visit()


@contextmanager
def serve(root: Path):
    """The address of a server of a folder; as sites do, it answers what is missing with 404.html."""

    class Server(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def send_error(self, code, message=None, explain=None):
            body = (root / "404.html").read_bytes()
            self.send_response(200)  # a browser complains of a 404 itself
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The book on a server, two folders down."""
    root = tmp_path_factory.mktemp("site")
    (root / "some").mkdir()
    (root / "some" / "where").symlink_to(BOOK.html)
    with serve(root) as address:
        yield address + "some/where/"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_under_a_path_of_a_site(page, site, name):
    assert visit(page, site + name, site) == Visit()


@pytest.mark.parametrize("where", ["file", "site"])
def test_the_address_of_the_book_leads_to_its_first_page(page, request, where):
    home = request.getfixturevalue("site") if where == "site" else BOOK.html.as_uri() + "/"
    page.goto(home + "index.html")
    page.wait_for_url(home + "intro.html")


def test_a_page_that_is_missing_says_so_wherever_it_was_looked_for(page):
    with serve(BOOK.html) as home:
        assert visit(page, home + "no/such/page.html", home) == Visit()
        assert "404" in page.title() or "not found" in page.title().lower()
        page.locator("nav a", has_text="Attention").first.click()
        page.wait_for_url(home + "chapters/03-attention.html")


@pytest.mark.parametrize("where", ["file", "site"])
def test_search_finds_a_word_and_leads_to_it(page, request, where):
    home = request.getfixturevalue("site") if where == "site" else BOOK.html.as_uri() + "/"
    seen = visit(page, home + "search.html?q=quadrature", home)
    page.wait_for_load_state("networkidle")  # each result fetches its page for a line of it
    page.locator("#search-results li a").first.click()
    page.wait_for_url(lambda url: "search.html" not in url)
    assert "quadrature" in page.locator("article.bd-article").inner_text().lower()
    assert seen == Visit()


@pytest.mark.parametrize("name", SLIDING)
def test_keys_move_the_interactive_figures(page, name):
    open_file(page, name)
    for slider in page.locator("input[type=range]").all():
        shown = slider.locator("xpath=ancestor::figure").first
        before = shown.inner_text()
        slider.focus()
        page.keyboard.press("ArrowRight")
        assert shown.inner_text() != before


def test_there_are_interactive_figures():
    assert {"intro.html", "chapters/07-scheme-on-a-grid.html"} <= set(SLIDING)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_weighs_little_beyond_what_all_share(page, name):
    loaded = set()
    page.on("requestfinished", lambda request: loaded.add(unquote(request.url.partition("#")[0].partition("?")[0])))
    open_file(page, name)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    home = BOOK.html.as_uri() + "/"
    shared = (home + "_static/", home + "searchindex.js")
    own = {url.removeprefix(home) for url in loaded if url.startswith(home) and not url.startswith(shared)}
    assert name in own
    assert sum((BOOK.html / file).stat().st_size for file in own) <= WEIGHT
