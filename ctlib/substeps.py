"""Substeps: the single moves of a scheme, each of them one fractional step in time.

An explicit step follows an operator, a projection is the implicit step of a constraint, and a semi-implicit step does
one and then the other.

The place in the paper: the substeps (16)–(21) in v2 as reported.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import torch

from ctlib.field import Field
from ctlib.operators import Map
from ctlib.sets import Set


class Witness(NamedTuple):
    """Where a network itself shows a fractional state: the input ("in") or output ("out") of one of its modules.

    `scale`: the state is `scale` times what the module shows.  `turn`: which call of the module shows it, counted from
    0, where layers share their parameters.
    """

    module: str
    side: str
    scale: float = 1.0
    turn: int = 0


class Substep(Map):
    """One fractional step.  `witness` says where the original network shows the state after it, if it does."""

    witness: Witness | None = None

    def terms(self) -> list[tuple[float, str]] | None:
        """What the substep contributes to u_t: coefficients and LaTeX; None where it replaces the state by another."""
        return None


class Explicit(Substep):
    """u ← u + Δt A[u]: one step of forward Euler for u_t = A[u].

    Arguments:
        rate: the operator A.
        dt: Δt.
    """

    def __init__(self, rate: Map, dt: float = 1.0, witness: Witness | None = None):
        self.rate, self.dt, self.witness = rate, dt, witness

    def __call__(self, u: Field) -> Field:
        rate = self.rate(u).values
        return u.like(u.values + rate if self.dt == 1 else torch.add(u.values, rate, alpha=self.dt))

    def __str__(self) -> str:
        return f"u + {factor(self.dt, '·')}{self.rate}"

    def tex(self, u: str) -> str:
        return f"{u}+{factor(self.dt)}{self.rate.tex(u)}"

    def terms(self) -> list[tuple[float, str]]:
        return [(self.dt, self.rate.tex("u"))]


class Project(Substep):
    """u ← P_S(u): the implicit step of u_t ∈ −∂I_S(u), the same for every Δt because N_S is a cone."""

    def __init__(self, onto: Set, witness: Witness | None = None):
        self.onto, self.witness = onto, witness

    def __call__(self, u: Field) -> Field:
        return self.onto(u)

    def __str__(self) -> str:
        return f"project on {self.onto}"

    def tex(self, u: str) -> str:
        return self.onto.tex(u)

    def terms(self) -> list[tuple[float, str]]:
        return [(1, rf"-\partial I_{{{self.onto.symbol}}}(u)")]


class Replace(Substep):
    """u ← P(Ã u) with Ã = I + A: a semi-implicit step, explicit in A, then closed by a projection or an activation.

    Networks store Ã, and so does this class: where Ã is small, A = Ã − I would lose its digits.

    Arguments:
        operator: Ã.  It may change the number of features.
        then: P; the identity unless given.
    """

    def __init__(self, operator: Map, then: Map | None = None, witness: Witness | None = None):
        self.operator, self.then, self.witness = operator, then, witness

    def __call__(self, u: Field) -> Field:
        return self.operator(u) if self.then is None else self.then.after(self.operator, u)

    def __str__(self) -> str:
        return f"apply {self.operator}" + (f", then {self.then}" if self.then else "")

    def tex(self, u: str) -> str:
        u = self.operator.tex(u)
        return u if self.then is None else self.then.tex(u)


def factor(w: float, times: str = r"\,") -> str:
    """A coefficient in print: nothing for 1, a sign for −1, a fraction otherwise."""
    return "" if w == 1 else "-" if w == -1 else f"{Fraction(w).limit_denominator(1000)}{times}"
