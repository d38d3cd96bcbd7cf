"""Operators A: maps that take the field u to a rate of change A[u].

Each class is one formula of the paper.  They compose with `@`: (A @ B)[u] = A[B[u]].  An operator is a plain object
that holds tensors; where it was made from a network, those are the network's own tensors.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ctlib.field import Field


class Map:
    """A map from fields to fields: the common root of operators, sets, substeps and splittings.

    A subclass defines `__call__`, and `tex(u)`: the map applied to the expression `u`, in LaTeX.
    `str` gives its name in one line.
    """

    #: Whether the result shares no memory with the argument, so that the next map may overwrite it.
    makes_new_values = False

    def __call__(self, u: Field) -> Field:
        raise NotImplementedError

    def overwrite(self, u: Field) -> Field:
        """The same as calling the map, for a field that nobody else holds: its memory may be used again."""
        return self(u)

    def after(self, inner: Map, u: Field) -> Field:
        """self[inner[u]], without a copy of inner[u] where one can be spared."""
        v = inner(u)
        return self.overwrite(v) if inner.makes_new_values else self(v)

    def tex(self, u: str) -> str:
        raise NotImplementedError

    def __matmul__(self, inner: Map) -> Map:
        return Compose(self, inner)


class Compose(Map):
    """(A ∘ B)[u] = A[B[u]], written `A @ B`."""

    def __init__(self, outer: Map, inner: Map):
        self.outer, self.inner = outer, inner

    def __call__(self, u: Field) -> Field:
        return self.outer.after(self.inner, u)

    def __str__(self) -> str:
        return f"{self.outer} ∘ {self.inner}"

    def tex(self, u: str) -> str:
        return self.outer.tex(self.inner.tex(u))


class Kernel(Map):
    """An integral over the feature domain, a fully connected layer on the grid:

        ⟨W, u⟩(x, y) + b(y) = ∫_{Ω_y} W(ξ, y) u(x, ξ) dξ + b(y)

    Arguments:
        weight: W with its quadrature weight multiplied in; row y, column ξ, as torch stores it.
        bias: b, or None for b = 0.
        symbol: the name of W in print.
        rows: the part of a packed weight that is W (Q, K and V often share one tensor).

    The place in the paper: the integral transforms of §3, their matrices in §3.4.
    """

    makes_new_values = True

    def __init__(
        self,
        weight: Float[Tensor, "rows features"],
        bias: Float[Tensor, " rows"] | None = None,
        symbol: str = "W",
        rows: slice = slice(None),
    ):
        self.weight, self.bias, self.symbol, self.rows = weight, bias, symbol, rows

    def __call__(self, u: Field) -> Field:
        W, b = self.weight[self.rows], None if self.bias is None else self.bias[self.rows]
        return u.rowwise(lambda v: F.linear(v, W, b))

    def __str__(self) -> str:
        return self.symbol

    def tex(self, u: str) -> str:
        bias = "" if self.bias is None else f"+b_{{{self.symbol}}}"
        return rf"\langle {self.symbol},{u}\rangle_{{\Omega_y}}{bias}"


class Pointwise(Map):
    """σ(u)(x, y) = σ(u(x, y)): an activation that is no projection, such as GELU.

    Arguments:
        function: σ, applied to each number.
        name: its name in print.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], name: str):
        self.function, self.name = function, name

    def __call__(self, u: Field) -> Field:
        return u.rowwise(self.function)

    def __str__(self) -> str:
        return self.name

    def tex(self, u: str) -> str:
        return rf"\mathrm{{{self.name}}}\bigl({u}\bigr)"


class Attention(Map):
    """Attention, a non-local integral operator whose kernel γ depends on the field:

        A[u](x, y) = ∫_{Ω_h} ∫_{Ω_x} γ(x, x̃, h; u) V(x̃, y, h; u) dμ(x̃) dh,
        γ(x, x̃, h; u) = exp s(x, x̃) / ∫_{Ω_x} exp s(x, ·) dμ,    s(x, x̃) = ⟨Q(x, ·, h), K(x̃, ·, h)⟩ / √d_k

    with Q, K, V integral transforms of u and d_k the number of features a head has.  μ is the measure of the grid.
    Where μ is empty (every node masked), the kernel has nothing to share out and the integral is 0.

    Arguments:
        Q, K, V: transforms of u to all heads side by side, (…, heads · d_k) features.
        O: from the heads, side by side, back to the features of u.  Applied to each head's share it is part of that
            head's V: summing heads and concatenating them are the same thing.
        heads: the number of nodes of Ω_h.
        scale: the factor of the scores, 1/√d_k unless given (a network may have rounded it another way).
        reads: the field m[u] that K and V are transforms of, and over whose domain and measure the integral runs; u
            itself unless given.  `Given()` makes this the cross-attention of a decoder.

    The place in the paper: γ and its scale, (23) in v2 as reported; the discrete form (37); heads in §5.
    """

    def __init__(
        self, Q: Map, K: Map, V: Map, O: Map, heads: int, scale: float | None = None, reads: Map | None = None
    ):
        self.Q, self.K, self.V, self.O, self.heads, self.scale, self.reads = Q, K, V, O, heads, scale, reads

    def read(self, u: Field) -> Field:
        """The field over whose domain attention integrates."""
        return u if self.reads is None else self.reads(u)

    def __call__(self, u: Field) -> Field:
        m = self.read(u)
        q, k, v = (
            T(w).values.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for T, w in ((self.Q, u), (self.K, m), (self.V, m))
        )
        mask, causal = m.grid.log_weight, m.grid.causal
        z = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=self.scale)  # (batch, heads, N, d_k)
        return self.O(u.like(z.transpose(1, 2).flatten(2)))

    def __str__(self) -> str:
        reads = "" if self.reads is None else f", reads {self.reads}"
        return f"A ({self.heads} head{'s' * (self.heads > 1)}{reads})"

    def tex(self, u: str) -> str:
        m, domain = (u, "x") if self.reads is None else (self.reads.tex(u), self.reads.tex(u))
        both = u if self.reads is None else f"{u},{m}"
        return rf"\int_{{\Omega_h}}\bigl\langle\gamma(\cdot\,;{both}),V[{m}]\bigr\rangle_{{\Omega_{{{domain}}}}}dh"

    def definitions(self) -> list[str]:
        """What γ and V in `tex` stand for."""
        both, m = ("w", "w") if self.reads is None else ("w,m", "m")
        return [
            rf"\gamma(x,\tilde x;{both})=\operatorname{{softmax}}_{{\tilde x}}\,"
            rf"\langle Q[w](x,\cdot),K[{m}](\tilde x,\cdot)\rangle/\sqrt{{d_k}}",
            *(f"{name}[w]={T.tex('w')}" for name, T in (("Q", self.Q), ("K", self.K))),
            f"V[w]={(self.O @ self.V).tex('w')}",
        ]


class Given(Map):
    """m, the field that is given beside u."""

    def __call__(self, u: Field) -> Field:
        if u.given is None:
            raise ValueError("Given: no field is given beside u; say Field(values, given=…).")
        return u.given

    def __str__(self) -> str:
        return "m"

    def tex(self, u: str) -> str:
        return "m"


class Exchange(Given):
    """(u, m) becomes (m, u): the state waits as the given field, and the field that waited moves on from here.

    A waiting field that was itself given one has the measure by which it will read u there.
    """

    def __call__(self, u: Field) -> Field:
        m = super().__call__(u)
        return Field(m.values, m.grid, m.tokens_first, given=(m.given or u).like(u.values))

    def __str__(self) -> str:
        return "exchange of u and m"

    def tex(self, u: str) -> str:
        return rf"m^{{-}},\quad m^{{+}}={u}"


class Extend(Map):
    """Ω_y becomes the disjoint union Ω_y ⊔ Ω_z, u = 0 on the new part (`by` > 0); or the last −`by` features go."""

    def __init__(self, by: int):
        self.by = by

    def __call__(self, u: Field) -> Field:
        return u.like(F.pad(u.values, (0, self.by)))

    def __str__(self) -> str:
        return f"extension of Ω_y by {self.by}" if self.by > 0 else f"restriction of Ω_y by {-self.by}"

    def tex(self, u: str) -> str:
        return rf"\mathrm{{E}}\,{u}" if self.by > 0 else rf"\mathrm{{E}}^{{\top}}{u}"


class Between(Map):
    """A kernel that reads one part of Ω_y ⊔ Ω_z and feeds another; its rate is zero everywhere else.

    Arguments:
        kernel: the kernel between the two parts.
        source, target: the features that it reads and feeds.
        features: the number of features of the whole of Ω_y ⊔ Ω_z.
    """

    def __init__(self, kernel: Map, source: slice, target: slice, features: int):
        self.kernel, self.source, self.target, self.features = kernel, source, target, features

    def __call__(self, u: Field) -> Field:
        rate = self.kernel(u.like(u.values[..., self.source])).values
        return u.like(F.pad(rate, (self.target.start, self.features - self.target.stop)))

    def __str__(self) -> str:
        return str(self.kernel)

    def tex(self, u: str) -> str:
        return self.kernel.tex(u)
