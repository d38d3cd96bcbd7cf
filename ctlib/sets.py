"""Constraint sets S.  Calling a set projects on it: the nearest point of S, which is the implicit step of −∂I_S.

I_S is the indicator function of S (0 on S, +∞ off it) and ∂I_S(u) its subdifferential, the outward normal cone N_S(u).
The nearest point u of v satisfies v − u ∈ N_S(u).
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ctlib.field import Field
from ctlib.operators import Map


class Set(Map):
    """A constraint set; `symbol` is its name in LaTeX."""

    symbol: str

    def tex(self, u: str) -> str:
        return rf"P_{{{self.symbol}}}\bigl({u}\bigr)"


class MeanVariance(Set):
    """S₁(σ₁, σ₂): at every x, u has mean σ₁ and variance σ₂² over Ω_y.  Its projection is layer normalisation:

        P(v) = (v − α) / √(β + ε) · σ₂ + σ₁,    α = mean of v over Ω_y,  β = variance of v over Ω_y

    With numbers σ₁, σ₂ and ε = 0 this is Theorem 3.1.  With functions σ₁(y), σ₂(y) it is the bias and the gain that a
    network learns.  For constant v and ε = 0 every point of S₁ is equally near, and the result is not a number.

    Arguments:
        sigma1, sigma2: numbers, or functions of y.
        eps: ε ≥ 0, added to the variance of v.  β is the mean square over all features, without Bessel's correction.

    The place in the paper: Theorem 3.1 and §3.3.2, proof in Appendix B.
    """

    symbol = "S_1"

    def __init__(
        self,
        sigma1: float | Float[Tensor, " features"] = 0.0,
        sigma2: float | Float[Tensor, " features"] = 1.0,
        eps: float = 0.0,
    ):
        if eps < 0:
            raise ValueError(f"MeanVariance: eps = {eps} must not be negative.")
        self.sigma1, self.sigma2, self.eps = sigma1, sigma2, eps
        no_bias = not isinstance(sigma1, Tensor) and sigma1 == 0
        self._fused = isinstance(sigma2, Tensor) and (no_bias or isinstance(sigma1, Tensor))
        self._plain = not isinstance(sigma2, Tensor) and sigma2 == 1 and no_bias
        self._bias = None if no_bias else sigma1

    def __call__(self, u: Field) -> Field:
        return u.rowwise(self._project)

    def _project(self, v: Float[Tensor, "*rows features"]) -> Float[Tensor, "*rows features"]:
        if self._fused:
            return F.layer_norm(v, v.shape[-1:], self.sigma2, self._bias, self.eps)
        z = F.layer_norm(v, v.shape[-1:], eps=self.eps)
        return z if self._plain else z * self.sigma2 + self.sigma1

    def tangent(self, u: Field, rate: Field) -> Field:
        """Π_u r, the part of a rate r along S₁(σ₁, σ₂) at one of its points u, for numbers σ₁, σ₂:

            Π_u r = r − ⟨r, 1⟩ − ⟨r, u − σ₁⟩ / σ₂² · (u − σ₁),    ⟨v, w⟩ the mean of v w over Ω_y

        It is the derivative of the projection at u.  Raises ValueError when σ₁ or σ₂ is a function of y.
        """
        if isinstance(self.sigma1, Tensor) or isinstance(self.sigma2, Tensor):
            raise ValueError("MeanVariance.tangent: S₁ must be given by numbers σ₁, σ₂.")
        r, z = rate.values, u.values - self.sigma1
        along = (r * z).mean(-1, keepdim=True) / self.sigma2**2
        return u.like(r - r.mean(-1, keepdim=True) - along * z)

    def scaled(self, c: float) -> MeanVariance:
        """The set whose projection undoes a scaling of its input: P_{c²ε}(c v) = P_ε(v) for every c > 0."""
        return MeanVariance(self.sigma1, self.sigma2, c * c * self.eps)

    def __str__(self) -> str:
        return "S₁" + (f" (ε = {self.eps:.3g})" if self.eps else "")


class RootMeanSquare(Set):
    """S₃(σ₂), a sphere: at every x, u / σ₂ has mean square 1 over Ω_y.  Its projection is RMSNorm:

        P(v) = v / √(q + ε) · σ₂,    q = mean of v² over Ω_y

    With σ₂ = 1 and ε = 0 it is the nearest point of the sphere.  The mean of v is kept in the proportion of its size:
    S₃ is another set than S₁, not another formula for it.  For v = 0 and ε = 0 the result is not a number.

    Arguments:
        sigma2: σ₂, the gain, a function of y.
        eps: ε ≥ 0, added to the mean square of v.
        in_float32: what is computed in float32 whatever the dtype of u, as trained networks do: the "state" and all
            that follows from it, the "norm" 1/√(q + ε) alone, or nothing.

    Zhang and Sennrich, Root mean square layer normalization, 2019.
    """

    symbol = "S_3"

    def __init__(
        self,
        sigma2: Float[Tensor, " features"],
        eps: float = 0.0,
        in_float32: Literal["state", "norm"] | None = None,
    ):
        self.sigma2, self.eps, self.in_float32 = sigma2, eps, in_float32

    def __call__(self, u: Field) -> Field:
        v = u.values
        w = v if self.in_float32 is None else v.to(torch.float32)
        norm = torch.rsqrt(w.pow(2).mean(-1, keepdim=True) + self.eps)
        z = (w if self.in_float32 == "state" else v) * norm
        return u.like(self.sigma2 * z.to(v.dtype))

    def definitions(self) -> list[str]:
        return [r"S_3=\{w:\ \langle w^2/\sigma_2^2\rangle_{\Omega_y}/|\Omega_y|=1\text{ at every }x\}"]

    def __str__(self) -> str:
        return "S₃" + (f" (ε = {self.eps:.3g})" if self.eps else "")


class Nonnegative(Set):
    """S₂ = {u ≥ 0}.  Its projection is the rectifier max(u, 0), ReLU.

    Arguments:
        part: the features on which u ≥ 0 is asked; all of them unless given.

    The place in the paper: §3.3.3.
    """

    symbol = "S_2"

    def __init__(self, part: slice = slice(None)):
        self.part = part

    def __call__(self, u: Field) -> Field:
        if self.part == slice(None):
            return u.like(torch.relu(u.values))
        v = u.values.clone()
        v[..., self.part].relu_()
        return u.like(v)

    def overwrite(self, u: Field) -> Field:
        u.values[..., self.part].relu_()
        return u

    def __str__(self) -> str:
        return "S₂" if self.part == slice(None) else f"S₂ on features {self.part.start} to {self.part.stop - 1}"
