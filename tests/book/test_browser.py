"""The built pages in a browser: whole without a network, sound mathematics, readable on a phone and for everybody."""

import http.server
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import axe_playwright_python
import pytest

from ctlib.book.browser import open_browser
from ctlib.book.places import Book, find_root

BOOK = Book(find_root())
PAGES = [f"{page}.html" for page in BOOK.pages()] + ["search.html", "genindex.html"]
SLIDING = [page for page in PAGES if 'type="range"' in (BOOK.html / page).read_text(encoding="utf-8")]
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
PHONE, LAPTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
WEIGHT = 700_000  # bytes of a page beyond what all pages share


@dataclass
class Visit:
    """What a page asked for and complained of while it was loaded."""

    outside: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport=LAPTOP)
    yield page
    page.close()


def visit(page, address: str, home: str) -> Visit:
    """Load a page to its last formula; what does not lie under `home` is refused, as with the network cut."""
    seen = Visit()

    def handle(route):
        if route.request.url.startswith((home, "data:", "blob:")):
            route.continue_()
        else:
            seen.outside.append(route.request.url)
            route.abort()

    page.route("**/*", handle)
    page.on("requestfailed", lambda request: seen.failed.append(request.url))
    page.on("response", lambda response: seen.failed.append(response.url) if response.status >= 400 else None)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("console", lambda message: seen.errors.append(message.text) if message.type == "error" else None)
    page.goto(address)
    page.evaluate("window.MathJax?.startup?.promise?.then(() => null)")
    return seen


def open_file(page, name: str) -> Visit:
    return visit(page, (BOOK.html / name).as_uri(), BOOK.html.as_uri())


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
    page.locator("#search-results li a").first.wait_for()
    page.locator("#search-results li a").first.click()
    page.wait_for_url(lambda url: "search.html" not in url)
    assert "quadrature" in page.locator("article.bd-article").inner_text().lower()
    assert seen == Visit()


@pytest.mark.parametrize("name", PAGES)
def test_every_formula_is_set(page, name):
    open_file(page, name)
    unset = """[...document.querySelectorAll('.math')].filter(m => !m.querySelector('mjx-container'))
               .map(m => m.textContent.slice(0, 80))"""
    assert page.evaluate(unset) == []
    assert page.evaluate("[...document.querySelectorAll('mjx-merror')].map(e => e.textContent)") == []
    text = page.evaluate(
        """(() => { const copy = document.querySelector('article, main').cloneNode(true);
            copy.querySelectorAll('pre, code, script, style, mjx-container').forEach(e => e.remove());
            return copy.textContent; })()"""
    )
    for sign in ("\\(", "\\[", "\\frac", "\\mathrm", "\\begin", "$$"):
        assert sign not in text, f"{name}: {sign} in …{text.partition(sign)[0][-60:]}"


def test_a_formula_that_is_wrong_would_be_seen(page):
    open_file(page, "intro.html")
    page.evaluate(
        r"""(() => { const m = document.querySelector('.math'); m.textContent = '\\(\\frac{1}\\)';
            return MathJax.typesetPromise([m]).then(() => null); })()"""
    )
    assert page.locator("mjx-merror").count() == 1


CUT_OFF = """(() => {
  const scrolls = e => e && e !== document.body &&
    (/(auto|scroll)/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  const right = e => e.getClientRects().length ? e.getBoundingClientRect().right : 0;
  return [...document.querySelectorAll('article.bd-article :is(mjx-container, img, svg, canvas, pre, table, p, h1)')]
    .filter(e => right(e) > innerWidth + 1 && !scrolls(e.parentElement) && !e.matches('mjx-container *'))
    .map(e => e.tagName + ' ' + Math.round(right(e)) + ' ' + e.textContent.slice(0, 60));
})()"""


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_shows_a_page_without_scrolling_sideways(page, name):
    page.set_viewport_size(PHONE)
    open_file(page, name)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate(CUT_OFF) == []


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_by_everybody(page, name, mode):
    page.add_init_script(f"localStorage.setItem('mode', '{mode}'); localStorage.setItem('theme', '{mode}')")
    open_file(page, name)
    assert page.evaluate("document.documentElement.dataset.theme") == mode
    page.evaluate(AXE)
    found = page.evaluate(
        "axe.run(document, {resultTypes: ['violations'], preload: false}).then(r => r.violations.map("
        "v => [v.impact, v.id, v.nodes.length, v.nodes[0].html.slice(0, 200)]))"
    )
    assert [one for one in found if one[0] in ("serious", "critical") or one[1] == "heading-order"] == []


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
    own = {url.removeprefix(home) for url in loaded if url.startswith(home) and "/_static/" not in url}
    assert name in own
    assert sum((BOOK.html / file).stat().st_size for file in own) <= WEIGHT
