"""What the chapters use: `check` a claim of the ledger, record a `number` for the prose, `draw` in the book's look,
`draw_parameters` for a network.

The rest of this package runs the chapters and builds the book (`python -m ctlib.book --help`). Mathematics never
imports it.
"""

from ctlib.book import draw
from ctlib.book.claims import ClaimError, check, number
from ctlib.book.networks import draw_parameters

draw.use_style()

__all__ = ["ClaimError", "check", "draw", "draw_parameters", "number"]
