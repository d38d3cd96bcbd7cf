"""Quadrature rules: what each integrates exactly, how fast it converges, and that attention keeps to its measure."""

import math

import numpy as np
import pytest
import scipy.integrate
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import normal

from ctlib import Attention, Field, Kernel
from ctlib.convergence import observed_order
from ctlib.quadrature import (
    clustered,
    gauss_legendre,
    midpoint,
    monte_carlo,
    periodic,
    simpson,
    trapezoid,
    trapezoid_at,
)

RULES = {
    "midpoint": midpoint,
    "trapezoid": trapezoid,
    "simpson": simpson,
    "gauss": gauss_legendre,
    "clustered": clustered,
}


@pytest.mark.parametrize("rule", [*RULES.values(), periodic, lambda n: monte_carlo(n, torch.Generator())])
@pytest.mark.parametrize("n", [3, 9, 33])
def test_weights_are_a_probability_on_increasing_nodes(rule, n):
    nodes, weights = rule(n)
    assert len(nodes) == len(weights) == n and nodes.dtype == weights.dtype == torch.float64
    assert (weights > 0).all() and weights.sum().item() == pytest.approx(1, abs=1e-14)
    assert (nodes.diff() > 0).all() and nodes.min() >= 0 and nodes.max() <= 1


@pytest.mark.parametrize(
    ("rule", "degree"), [(midpoint, 1), (trapezoid, 1), (clustered, 1), (simpson, 3), (gauss_legendre, 17)]
)
def test_polynomials_up_to_its_degree_are_exact_and_no_further(rule, degree):
    nodes, weights = rule(9)

    def error(power):
        return abs(((nodes**power) @ weights).item() - 1 / (power + 1))

    assert max(error(power) for power in range(degree + 1)) < 1e-15 * 9
    assert error(degree + 1) > 1e-12


@pytest.mark.parametrize(("name", "order"), [("midpoint", 2), ("trapezoid", 2), ("clustered", 2), ("simpson", 4)])
def test_observed_orders(name, order):
    sizes = [9, 17, 33, 65]
    exact = math.e - 1
    errors = [abs(RULES[name](n).integrate(RULES[name](n).nodes.exp()).item() - exact) for n in sizes]
    assert observed_order([1 / (n - 1) for n in sizes], errors).slope == pytest.approx(order, abs=0.2)


def test_the_periodic_rule_is_exact_for_waves_it_can_resolve():
    nodes, weights = periodic(8)
    waves = torch.stack([torch.cos(2 * math.pi * k * nodes) for k in range(8)])
    assert (waves @ weights).abs()[1:].max() < 1e-15


@given(st.integers(2, 20), st.integers(0, 10**6))
def test_trapezoid_at_agrees_with_numpy(n, seed):
    nodes = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).sort().values
    f = nodes.sin()
    assert trapezoid_at(nodes).integrate(f).item() == pytest.approx(np.trapezoid(f.numpy(), nodes.numpy()), abs=1e-15)


@given(st.integers(1, 20).map(lambda k: 2 * k + 1))
def test_simpson_agrees_with_scipy(n):
    rule = simpson(n)
    f = (3 * rule.nodes).sin()
    expected = scipy.integrate.simpson(f.numpy(), rule.nodes.numpy())
    assert rule.integrate(f).item() == pytest.approx(expected, abs=1e-15)


def test_one_node_is_a_point_mass():
    assert trapezoid_at(torch.tensor([0.3], dtype=torch.float64)).weights.tolist() == [1.0]


def test_bad_requests_say_what_is_wrong():
    with pytest.raises(ValueError, match="n = 8, but pairs of equal cells need an odd number"):
        simpson(8)
    with pytest.raises(ValueError, match="must increase"):
        trapezoid_at(torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64))


def test_attention_by_weights_is_attention_with_repeated_nodes():
    """A node of weight 2/3 beside one of weight 1/3 acts like the same token twice beside the other once."""
    Q, K, V, O = (Kernel(normal(4, 4, seed=s)) for s in range(4))
    A = Attention(Q, K, V, O, heads=2)
    a, b = normal(1, 2, 4, seed=9).unbind(1)
    rule = trapezoid(2)._replace(weights=torch.tensor([2 / 3, 1 / 3], dtype=torch.float64))
    weighted = A(Field(torch.stack([a, b], 1), rule.grid())).values
    repeated = A(Field(torch.stack([a, a, b], 1))).values
    torch.testing.assert_close(weighted, repeated[:, [0, 2]], rtol=1e-13, atol=1e-13)


def test_unweighted_keeps_nodes_and_mass():
    rule = clustered(9)
    plain = rule.unweighted()
    assert torch.equal(plain.nodes, rule.nodes) and plain.weights.unique().numel() == 1
    assert plain.weights.sum().item() == pytest.approx(1)
