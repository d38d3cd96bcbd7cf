"""Observed orders of convergence, with the interval in which the order lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats


class Order(NamedTuple):
    """The p of error ≈ C hᵖ: the slope of a line through (log h, log error), and its confidence interval."""

    slope: float
    low: float
    high: float

    def distance(self, expected: float) -> float:
        """How far the interval reaches from the expected order: a claim of order is about all of the interval."""
        return max(abs(self.low - expected), abs(self.high - expected))


def observed_order(h: Sequence[float], errors: Sequence[float], confidence: float = 0.95) -> Order:
    """Least squares for log error = p log h + log C.

    The interval is Student's, as if the distances from the line were independent and normal.  For a deterministic
    method they are not random but the next terms of the error, and the interval says how straight the line is.

    Arguments:
        h: step sizes, at least three different ones.
        errors: one error for each of them.
        confidence: the probability of the interval.

    Raises ValueError for fewer than three points, or an error that is not positive (it has no logarithm).
    """
    h, errors = np.asarray(h, dtype=float), np.asarray(errors, dtype=float)
    if len(h) != len(errors) or len(h) < 3:
        raise ValueError(f"observed_order: {len(h)} step sizes and {len(errors)} errors; give three or more of both.")
    if not (np.isfinite(errors) & (errors > 0)).all():
        raise ValueError("observed_order: an error of 0, or one that isn't a number, has no order.")
    fit = scipy.stats.linregress(np.log(h), np.log(errors))
    half = scipy.stats.t.ppf((1 + confidence) / 2, len(h) - 2) * fit.stderr
    return Order(float(fit.slope), float(fit.slope - half), float(fit.slope + half))
