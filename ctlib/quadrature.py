"""Quadrature: an integral over a domain [0, 1] as a weighted sum over nodes.

    ∫₀¹ f(x) dx  ≈  Σ_j w_j f(x_j)

The same rules serve Ω_x, Ω_y and Ω_h.  On Ω_x they become the measure of a grid, by which attention integrates.

The place in the paper: the uniform grids of §3.4; every other rule is this book's.
"""

from __future__ import annotations

from typing import NamedTuple

import scipy.special
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ctlib.field import Grid


class Rule(NamedTuple):
    """Nodes x_j in [0, 1] and weights w_j ≥ 0, in float64."""

    nodes: Float[Tensor, " n"]
    weights: Float[Tensor, " n"]

    def integrate(self, values: Float[Tensor, "*rest n"]) -> Float[Tensor, "*rest"]:
        """Σ_j w_j f(x_j) over the last axis."""
        return values @ self.weights.to(values.dtype)

    def grid(self, dtype: torch.dtype = torch.float64) -> Grid:
        """The nodes as Ω_x with the weights as its measure, for fields of this dtype."""
        return Grid((len(self.nodes),), log_weight=self.weights.log().to(dtype)[None, None, None, :])

    def unweighted(self) -> Rule:
        """The same nodes with equal weights of the same sum: what a softmax without weights takes."""
        return Rule(self.nodes, torch.full_like(self.weights, self.weights.sum().item() / len(self.nodes)))


def midpoint(n: int) -> Rule:
    """The middles of n equal cells, all weights 1/n; order 2."""
    return Rule((torch.arange(n, dtype=torch.float64) + 0.5) / n, torch.full((n,), 1 / n, dtype=torch.float64))


def periodic(n: int) -> Rule:
    """n nodes around a circle, all weights 1/n; for a smooth periodic f more accurate than any power of 1/n."""
    return Rule(torch.arange(n, dtype=torch.float64) / n, torch.full((n,), 1 / n, dtype=torch.float64))


def trapezoid(n: int) -> Rule:
    """n equally spaced nodes, both ends among them, the ends with half the weight; order 2."""
    return trapezoid_at(torch.linspace(0, 1, n, dtype=torch.float64))


def trapezoid_at(nodes: Float[Tensor, " n"]) -> Rule:
    """The trapezoidal rule on any nodes in increasing order; order 2 in the largest gap.

    A single node stands for a point mass of 1.  Raises ValueError when the nodes don't increase.
    """
    if bool((nodes.diff() <= 0).any()):
        raise ValueError("trapezoid_at: the nodes must increase from left to right.")
    if len(nodes) == 1:
        return Rule(nodes, torch.ones_like(nodes))
    gaps = F.pad(nodes.diff(), (1, 1))  # none beyond the ends
    return Rule(nodes, (gaps[:-1] + gaps[1:]) / 2)


def simpson(n: int) -> Rule:
    """Simpson's rule on an odd number of equally spaced nodes, weights 1, 4, 2, 4, …, 4, 1; order 4.

    Raises ValueError for an even n, or n < 3.
    """
    if n < 3 or n % 2 == 0:
        raise ValueError(f"simpson: n = {n}, but pairs of equal cells need an odd number of nodes, 3 or more.")
    weights = torch.full((n,), 4, dtype=torch.float64)
    weights[::2], weights[0], weights[-1] = 2, 1, 1
    return Rule(torch.linspace(0, 1, n, dtype=torch.float64), weights / (3 * (n - 1)))


def gauss_legendre(n: int) -> Rule:
    """The n roots of a Legendre polynomial: exact for polynomials up to the degree 2n − 1."""
    nodes, weights = scipy.special.roots_legendre(n)
    return Rule(torch.from_numpy((nodes + 1) / 2), torch.from_numpy(weights / 2))


def monte_carlo(n: int, generator: torch.Generator) -> Rule:
    """n independent uniform nodes in increasing order, all weights 1/n; the error has size n^(−1/2)."""
    nodes = torch.rand(n, generator=generator, dtype=torch.float64)
    return Rule(nodes.sort().values, torch.full((n,), 1 / n, dtype=torch.float64))


def clustered(n: int) -> Rule:
    """Nodes x = s² with s equally spaced, close together near 0, and their trapezoidal weights; order 2."""
    return trapezoid_at(torch.linspace(0, 1, n, dtype=torch.float64).square())
