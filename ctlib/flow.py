"""Flows u_t = Σ_k A_k[u]: their substeps in three kinds, and the ways to split them.

A *part* knows one term of the equation: given Δt, it returns the substep that follows this term alone for that time,
such as `lambda dt: Explicit(A, dt)`.  A splitting takes parts and Δt and returns one time step, a scheme as any other.

The place in the paper: Appendix A (sequential, parallel and hybrid splitting); Strang's and the others are classical.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import scipy.integrate
import torch
from torch import Tensor

from ctlib.field import Field
from ctlib.operators import Kernel, Map
from ctlib.splitting import Parallel, Sequential
from ctlib.substeps import Substep, factor

Part = Callable[[float], Map]
Splitting = Callable[[Sequence[Part], float], Map]


class Linear(Substep):
    """A substep of u_t = ⟨A, u⟩, one matrix a step: what the exact flow and the implicit step have in common.

    Arguments:
        rate: A, a kernel without bias that keeps the number of features.
        dt: Δt.
    """

    def __init__(self, rate: Kernel, dt: float = 1.0):
        if rate.bias is not None or rate.weight.shape[0] != rate.weight.shape[1]:
            raise ValueError(f"{type(self).__name__}: the kernel must be square and have no bias.")
        self.rate, self.dt = rate, dt
        self.step = Kernel(self.matrix(rate.weight, dt), symbol=self.symbol())

    def matrix(self, A: Tensor, dt: float) -> Tensor:
        raise NotImplementedError

    def symbol(self) -> str:
        raise NotImplementedError

    def __call__(self, u: Field) -> Field:
        return self.step(u)

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} step of {self.rate} over {factor(self.dt, '') or 1}"

    def tex(self, u: str) -> str:
        return rf"{self.step.symbol}\,{u}"

    def terms(self) -> list[tuple[float, str]]:
        return [(self.dt, self.rate.tex("u"))]


class Exact(Linear):
    """u ← e^{Δt A} u: the closed form, which follows the term without any error."""

    def matrix(self, A: Tensor, dt: float) -> Tensor:
        return torch.linalg.matrix_exp(dt * A)

    def symbol(self) -> str:
        return f"e^{{{factor(self.dt)}{self.rate.symbol}}}"


class Implicit(Linear):
    """u ← (I − Δt A)⁻¹ u: one step of backward Euler, the rate taken where the step ends."""

    def matrix(self, A: Tensor, dt: float) -> Tensor:
        return torch.linalg.inv(torch.eye(len(A), dtype=A.dtype) - dt * A)

    def symbol(self) -> str:
        return f"(I-{factor(self.dt)}{self.rate.symbol})^{{-1}}"


def lie(parts: Sequence[Part], dt: float) -> Sequential:
    """Sequential (Lie) splitting: one part after the other; order 1."""
    return Sequential(*(part(dt) for part in parts))


def strang(parts: Sequence[Part], dt: float) -> Sequential:
    """Half a step of each part forwards, then half a step of each backwards; order 2 with substeps of order 2."""
    return Sequential(*(part(dt / 2) for part in (*parts, *reversed(parts))))


def additive(parts: Sequence[Part], dt: float) -> Parallel:
    """Parallel splitting: the mean over K parts, each followed K times as long from the same state; order 1."""
    return Parallel(*(part(len(parts) * dt) for part in parts))


def symmetrised(parts: Sequence[Part], dt: float) -> Parallel:
    """The mean of both orders of sequential splitting, a hybrid; order 2 for two parts with exact substeps."""
    return Parallel(lie(parts, dt), lie(parts[::-1], dt))


def triple_jump(parts: Sequence[Part], dt: float) -> Sequential:
    """Three of Strang's steps, the middle one backwards in time; order 4 with exact substeps."""
    outer = 1 / (2 - 2 ** (1 / 3))
    return Sequential(*(strang(parts, share * dt) for share in (outer, 1 - 2 * outer, outer)))


#: The order of each splitting with exact substeps.
ORDERS: dict[Splitting, int] = {lie: 1, additive: 1, strang: 2, symmetrised: 2, triple_jump: 4}


def march(splitting: Splitting, parts: Sequence[Part], u: Field, time: float, steps: int) -> Field:
    """u after `steps` equal time steps to `time`."""
    step = splitting(parts, time / steps)
    for _ in range(steps):
        u = step(u)
    return u


def reference(
    rate: Callable[[float, Field], Field], u: Field, time: float, tolerance: float = 1e-12, max_step: float = math.inf
) -> Field:
    """u at `time` under u_t = rate(t, u), by scipy's eighth-order Runge–Kutta method, which knows nothing of splitting.

    Arguments:
        tolerance: of the error of one step, relative and absolute.
        max_step: a bound on its steps, for rates with kinks.

    Raises RuntimeError with scipy's reason when it does not reach `time`.
    """

    def flat_rate(t, flat):
        state = u.like(torch.from_numpy(flat).view_as(u.values))
        return rate(t, state).values.flatten().numpy()

    found = scipy.integrate.solve_ivp(
        flat_rate, (0, time), u.values.flatten().numpy(), "DOP853", rtol=tolerance, atol=tolerance, max_step=max_step
    )
    if not found.success:
        raise RuntimeError(f"reference: {found.message}")
    return u.like(torch.from_numpy(found.y[:, -1]).view_as(u.values))
