"""What the chapters use: `check` a claim of the ledger, record a `number` for the prose, `draw` in the book's look,
`draw_parameters` for a network.

The rest of this package runs the chapters and builds the book (`python -m ctlib.book --help`). Mathematics never
imports it.
"""

import warnings

from ctlib.book import draw
from ctlib.book.claims import ClaimError, check, number
from ctlib.book.networks import draw_parameters

draw.use_style()
warnings.filterwarnings("ignore", message="IProgress not found")  # what progress bars say where there are no widgets

__all__ = ["ClaimError", "check", "draw", "draw_parameters", "number"]
