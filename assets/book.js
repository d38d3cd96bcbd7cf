/* What style sheets cannot do. */

// From a folder, a browser refuses the pages that the search would quote from: it lists titles only.
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// A formula in the text that is wider than the page gets a box of its own to scroll in.
addEventListener("load", () => window.MathJax?.startup?.promise?.then(() => {
  for (const formula of document.querySelectorAll("span.math")) {
    const room = formula.closest("p, li, dd, td, figcaption, div")?.getBoundingClientRect();
    const box = formula.firstElementChild?.getBoundingClientRect();
    if (room && box && box.right > room.right + 1) formula.classList.add("wide");
  }
}));
