"""The one look of every figure: vector graphics, white face, few lines, colours that everybody can tell apart."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from IPython import get_ipython
from IPython.display import HTML
from matplotlib.axes import Axes
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


def table(columns: list[str], rows: list[list[object]]) -> HTML:
    """A table of results, for a page other than its chapter's to show as well (`glue` it)."""
    cells = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    return HTML(
        f'<div class="pst-scrollable-table-container"><table class="table results"><thead><tr>{head}</tr></thead>'
        f"<tbody>{cells}</tbody></table></div>"
    )
