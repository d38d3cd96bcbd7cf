"""A browser for the tests of the built pages."""

import pytest
from visits import LAPTOP

from ctlib.book.browser import open_browser


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport=LAPTOP)
    yield page
    page.close()
