"""The one look of every figure: vector graphics, white face, few lines, colours that everybody can tell apart."""

from __future__ import annotations

import io
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from IPython import get_ipython
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib_inline.backend_inline import set_matplotlib_formats

if TYPE_CHECKING:
    import torch

# Okabe and Ito's palette, in the order in which lines take it.
COLOURS = {
    "blue": "#0072B2",
    "orange": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "amber": "#E69F00",
    "grey": "#6B7280",
    "black": "#1F2937",
}

STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": COLOURS["grey"],
    "axes.grid": True,
    "axes.labelcolor": COLOURS["black"],
    "axes.labelsize": 13,
    "axes.prop_cycle": cycler(color=list(COLOURS.values())),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "figure.figsize": (6.4, 4.0),
    "figure.max_open_warning": 0,
    "font.size": 13,
    "grid.color": "#E5E7EB",
    "image.cmap": "RdBu_r",
    "legend.fontsize": 12,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "lines.markersize": 6,
    "savefig.facecolor": "white",
    "svg.hashsalt": "ctlib",
    "text.color": COLOURS["black"],
    "xtick.color": COLOURS["black"],
    "xtick.labelsize": 12,
    "ytick.color": COLOURS["black"],
    "ytick.labelsize": 12,
}


def use_style() -> None:
    """Set the look for all figures from now on; in a notebook, a figure is shown where a cell ends with it."""
    matplotlib.rcParams.update(STYLE)
    if get_ipython() is not None:
        set_matplotlib_formats("svg", metadata={"Date": None})
        plt.get_backend()  # settle the backend first: choosing it turns interactive drawing on
        plt.ioff()


def field(ax: Axes, values: torch.Tensor, *, x: str = "feature", y: str = "token", label: str = "") -> AxesImage:
    """Draw a field u(x, y) on its grid: one row a token, one column a feature, white where it is zero.

    The colour scale is symmetric about 0. `label` names the colour bar (no bar without one); the image is returned.
    """
    numbers = np.asarray(values.detach().cpu().double())  # [tokens, features]
    if numbers.ndim != 2:
        raise ValueError(f"a field has two dimensions (tokens, features); this one has shape {numbers.shape}")
    limit = np.abs(numbers).max() or 1.0
    image = ax.imshow(numbers, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    ax.grid(False)
    ax.set(xlabel=x, ylabel=y)
    if label:
        ax.figure.colorbar(image, ax=ax, label=label)
    return image


def frames(figures: list[Figure], label: str, captions: list[str]) -> HTML:
    """Figures of one size that a slider steps through, each with its caption, which is its alternative text as well.

    `label` says what the slider moves. It works offline; without scripts all figures stand one under the other.
    """
    pictures = []
    for figure, caption in zip(figures, captions, strict=True):
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        picture = buffer.getvalue().decode().replace('"', "'").replace("\n", " ")
        source = "data:image/svg+xml," + quote(picture, safe=" ;/?:@=,.!~*'()<>")
        text = escape(caption)
        pictures.append(f'<div class="frame"><img src="{source}" alt="{text}"><figcaption>{text}</figcaption></div>')
    slider = f'<input type="range" min="0" max="{len(figures) - 1}" value="0">'
    return HTML(
        f'<figure class="frames">{"".join(pictures)}<label hidden>{escape(label)} {slider}</label></figure>'
        f"<style>{_FRAMES_STYLE}</style><script>{_FRAMES_SCRIPT}</script>"
    )


_FRAMES_STYLE = """.frames img{width:100%;max-width:44rem;display:block;margin:auto;background:white;border-radius:6px}
.frames label:not([hidden]){display:flex;gap:.8rem;align-items:center;max-width:36rem;margin:.6rem auto}
.frames input{flex:1;min-width:0}.frames figcaption{max-width:44rem;margin:.4rem auto;min-height:3.2em}"""

_FRAMES_SCRIPT = """for (const box of document.querySelectorAll(".frames:not([data-ready])")) {
  box.dataset.ready = "";
  const pictures = box.querySelectorAll(".frame"), slider = box.querySelector("input");
  const show = () => pictures.forEach((picture, i) => { picture.hidden = i != slider.value; });
  slider.parentElement.hidden = false;
  slider.addEventListener("input", show);
  show();
}"""


def table(columns: list[str], rows: list[list[object]]) -> HTML:
    """A table of results, for a page other than its chapter's to show as well (`glue` it)."""
    cells = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    return HTML(
        f'<div class="pst-scrollable-table-container"><table class="table results"><thead><tr>{head}</tr></thead>'
        f"<tbody>{cells}</tbody></table></div>"
    )
