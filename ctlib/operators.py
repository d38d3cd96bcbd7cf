"""Operators A: maps that take the field u to a rate of change A[u].

Each class is one formula of the paper.  They compose with `@`: (A @ B)[u] = A[B[u]].  An operator is a plain object
that holds tensors; where it was made from a network, those are the network's own tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ctlib.field import Field, Grid

if TYPE_CHECKING:
    from ctlib.positions import Relative, Rotary


class Map:
    """A map from fields to fields: the common root of operators, sets, substeps and splittings.

    A subclass defines `__call__`, and `tex(u)`: the map applied to the expression `u`, in LaTeX.
    `str` gives its name in one line.
    """

    #: Where a network itself shows the result, if it does; see `ctlib.substeps.Witness`.
    witness = None
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

    def definitions(self) -> list[str]:
        """What the symbols in `tex` stand for, where they need saying: lines of LaTeX."""
        return []

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


class Product(Map):
    """A[u] · B[u] at every (x, y): a gate A that lets B pass."""

    makes_new_values = True

    def __init__(self, gate: Map, passed: Map):
        self.gate, self.passed = gate, passed

    def __call__(self, u: Field) -> Field:
        return u.like(self.gate(u).values * self.passed(u).values)

    def __str__(self) -> str:
        return f"({self.gate}) · ({self.passed})"

    def tex(self, u: str) -> str:
        return rf"{self.gate.tex(u)}\,\bigl({self.passed.tex(u)}\bigr)"


class Diagonal(Map):
    """(Λu)(x, y) = λ(y) u(x, y), such as the learned step sizes that LayerScale puts before every rate.

    Arguments:
        factor: λ, a function of y.
        symbol: its name in LaTeX.
    """

    makes_new_values = True

    def __init__(self, factor: Float[Tensor, " features"], symbol: str = r"\lambda"):
        self.factor, self.symbol = factor, symbol

    def __call__(self, u: Field) -> Field:
        return u.like(u.values * self.factor)

    def __str__(self) -> str:
        return self.symbol.replace(r"\lambda", "λ")

    def tex(self, u: str) -> str:
        return rf"{self.symbol}\,\bigl({u}\bigr)" if _is_sum(u) else rf"{self.symbol}\,{u}"


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
        shared_heads: the number of heads that K and V have, where neighbouring heads of Q share one: K and V are then
            constant in part of h.  As many as `heads` unless given.
        causal: the measure is restricted to x̃ ≤ x here, whatever the grid says.
        rotary: a rotation of Q and K by the positions of their nodes; see `ctlib.positions.Rotary`.
        offset: b(x, x̃, h), added to the scores; see `ctlib.positions.Relative`.

    The place in the paper: γ and its scale, (23) in v2 as reported; the discrete form (37); heads in §5.
    """

    def __init__(
        self,
        Q: Map,
        K: Map,
        V: Map,
        O: Map,
        heads: int,
        scale: float | None = None,
        reads: Map | None = None,
        shared_heads: int | None = None,
        causal: bool = False,
        rotary: Rotary | None = None,
        offset: Relative | None = None,
    ):
        self.Q, self.K, self.V, self.O, self.heads, self.scale, self.reads = Q, K, V, O, heads, scale, reads
        self.shared_heads = shared_heads or heads
        self.causal, self.rotary, self.offset = causal, rotary, offset

    def read(self, u: Field) -> Field:
        """The field over whose domain attention integrates."""
        return u if self.reads is None else self.reads(u)

    def __call__(self, u: Field) -> Field:
        m = self.read(u)
        Q, K, V = self.Q(u), self.K(m), self.V(m)
        q, k, v = (
            T.values.unflatten(-1, (heads, -1)).transpose(1, 2)
            for T, heads in ((Q, self.heads), (K, self.shared_heads), (V, self.shared_heads))
        )
        if self.rotary is not None:
            q, k = self.rotary(q, Q.grid), self.rotary(k, K.grid)
        log_measure = self._log_measure(Q.grid, K.grid, q.dtype)
        z = F.scaled_dot_product_attention(
            q,
            k,
            v,
            log_measure,
            is_causal=log_measure is None and (self.causal or K.grid.causal),
            scale=self.scale,
            enable_gqa=self.shared_heads != self.heads,
        )  # (batch, heads, N, d_k)
        return self.O(u.like(z.transpose(1, 2).flatten(2), Q.grid))

    def _log_measure(self, x: Grid, read: Grid, dtype: torch.dtype) -> Float[Tensor, "..."] | None:
        """What is added to the scores: the logarithm of the measure and b.

        None where there is neither, and where the fused kernel restricts the measure to x̃ ≤ x by itself.
        """
        if self.offset is None:
            if read.log_weight is None or not self.causal:
                return read.log_weight
            return read.once(("causal", dtype), lambda: _looking_back(read.log_weight))
        b = self.offset(x, read, dtype)
        if read.log_weight is not None:
            b = b + read.log_weight
        return _looking_back(b) if self.causal or read.causal else b

    def __str__(self) -> str:
        told = [f"{self.heads} head{'s' * (self.heads > 1)}"]
        told += [f"K and V of {self.shared_heads}"] * (self.shared_heads != self.heads)
        told += ["x̃ ≤ x"] * self.causal
        told += [str(part) for part in (self.rotary, self.offset) if part is not None]
        told += [] if self.reads is None else [f"reads {self.reads}"]
        return f"A ({', '.join(told)})"

    def tex(self, u: str) -> str:
        m = u if self.reads is None else self.reads.tex(u)
        both = u if self.reads is None else f"{u},{m}"
        domain = rf"\Omega_{{{'x' if self.reads is None else m}}}" + (r"\cap\{\tilde x\le x\}" if self.causal else "")
        return rf"\int_{{\Omega_h}}\bigl\langle\gamma(\cdot\,;{both}),V[{m}]\bigr\rangle_{{{domain}}}dh"

    def definitions(self) -> list[str]:
        """What γ and V in `tex` stand for."""
        both, m = ("w", "w") if self.reads is None else ("w,m", "m")
        q, k = r"Q[w](x,\cdot)", rf"K[{m}](\tilde x,\cdot)"
        if self.rotary is not None:
            q, k = rf"R_x{q}", rf"R_{{\tilde x}}{k}"
        scale = "" if self.scale == 1 else r"/\sqrt{d_k}"
        offset = "" if self.offset is None else self.offset.tex()
        score = rf"\langle {q},{k}\rangle{scale}{offset}"
        return [
            rf"\gamma(x,\tilde x;{both})=\operatorname{{softmax}}_{{\tilde x}}\,"
            + (rf"\bigl({score}\bigr)" if offset else score),
            *(f"{name}[{w}]={T.tex(w)}" for name, T, w in (("Q", self.Q, "w"), ("K", self.K, "w"))),
            f"V[w]={(self.O @ self.V).tex('w')}",
        ]


def _looking_back(scores: Float[Tensor, "... nodes read"]) -> Float[Tensor, "... nodes read"]:
    """Scores with −∞ wherever x̃ comes after x."""
    n, read = scores.shape[-2:]
    later = torch.ones(max(n, read), read, dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later if n == 1 else later[:n], -torch.inf)


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


def _is_sum(tex: str) -> bool:
    """Whether an expression in LaTeX has a sum at its outermost level, and so needs brackets before a factor."""
    depth = 0
    for i, c in enumerate(tex):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(c, 0)
        depth += 1 if tex.startswith(r"\langle", i) else -1 if tex.startswith(r"\rangle", i) else 0
        if depth == 0 and c in "+-":
            return True
    return False
