"""Observed orders: exact powers are found exactly, the interval covers, and what has no order is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctlib.convergence import Order, observed_order


@given(st.floats(0.1, 6), st.floats(1e-6, 1e3))
def test_a_pure_power_has_its_order(order, constant):
    h = [0.5, 0.25, 0.125, 0.0625]
    found = observed_order(h, [constant * x**order for x in h])
    assert found.slope == pytest.approx(order, abs=1e-9) and found.distance(order) < 1e-6


def test_the_interval_covers_the_true_slope_as_often_as_it_says():
    generator = np.random.default_rng(0)
    h = 2.0 ** -np.arange(6)
    covers = [
        found.low <= 2 <= found.high
        for found in (observed_order(h, h**2 * np.exp(0.3 * generator.normal(size=6))) for _ in range(400))
    ]
    assert np.mean(covers) == pytest.approx(0.95, abs=0.04)


def test_distance_is_to_the_far_end():
    assert Order(2.0, 1.9, 2.3).distance(2) == pytest.approx(0.3)


@pytest.mark.parametrize("errors", [[1, 0.5, 0], [1, 0.5, float("nan")]])
def test_no_order_without_errors(errors):
    with pytest.raises(ValueError, match="has no order"):
        observed_order([1, 0.5, 0.25], errors)


def test_two_points_are_a_line_and_no_evidence():
    with pytest.raises(ValueError, match="three or more"):
        observed_order([1, 0.5], [1, 0.5])
