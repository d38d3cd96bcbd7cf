"""Visits to the built pages in a browser, for the tests."""

from dataclasses import dataclass, field

from ctlib.book.places import Book, find_root

BOOK = Book(find_root())
PAGES = [f"{page}.html" for page in BOOK.pages()] + ["search.html", "genindex.html"]
PHONE, LAPTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}


@dataclass
class Visit:
    """What a page asked for and complained of while it was loaded."""

    outside: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


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
