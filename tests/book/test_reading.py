"""The built pages as they are read: sound mathematics, on a phone, in the dark, and by everybody."""

from pathlib import Path

import axe_playwright_python
import pytest
from visits import PAGES, PHONE, open_file

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


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
