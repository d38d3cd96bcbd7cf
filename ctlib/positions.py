"""Where a node is: rates and scores that depend on positions, not only on the state.

A position enters in three ways: as a rate p(x, y) that is added once, as a rotation of queries and keys, or as an
offset b(x, x̃) of the scores.  `Cells` makes the measure of attention depend on the position: each node reads its own
cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ctlib.field import Field, Grid
from ctlib.operators import Map


class Source(Map):
    """A rate that does not depend on u: p(x, y), a learned function of the position.

    Arguments:
        values: from the grid to the values of p on its nodes.
        symbol: its name in LaTeX.
    """

    def __init__(self, values: Callable[[Grid], Float[Tensor, "#batch nodes features"]], symbol: str = "p"):
        self.values, self.symbol = values, symbol

    def __call__(self, u: Field) -> Field:
        return u.like(self.values(u.grid))

    def __str__(self) -> str:
        return f"{self.symbol}(x, y)"

    def tex(self, u: str) -> str:
        return self.symbol


class Rotary:
    """R_x: pairs of features of queries and keys, turned by angles that grow with the position x:

        (R_x q)(η) = q(η) cos xω_η − q(η + d_k/2) sin xω_η,    (R_x q)(η + d_k/2) = q(η + d_k/2) cos xω_η + q(η) sin
        xω_η

    for the first half of the features η.  ⟨R_x q, R_x̃ k⟩ depends on x and x̃ through x̃ − x alone.

    Arguments:
        frequency: gives ω, one angle for each pair, when called (a buffer that moves with its network).
        size: a factor of cosine and sine, 1 for a rotation.

    Angles, cosines and sines are computed in float32 and then cast, as trained networks do.
    Su et al., RoFormer, 2021.
    """

    def __init__(self, frequency: Callable[[], Float[Tensor, " pairs"]], size: float = 1.0):
        self.frequency, self.size = frequency, size

    def __call__(self, q: Float[Tensor, "batch heads nodes d_k"], grid: Grid) -> Float[Tensor, "batch heads nodes d_k"]:
        cos, sin = grid.once((self, q.dtype, q.device), lambda: self._table(grid, q))
        a, b = q.chunk(2, dim=-1)
        return (q * cos) + (torch.cat((-b, a), dim=-1) * sin)

    def _table(self, grid: Grid, q: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.arange(len(grid), device=q.device)[None] if grid.position is None else grid.position
        angle = x[..., None].float() * self.frequency().to(q.device, torch.float)
        angle = torch.cat((angle, angle), dim=-1).unsqueeze(1)  # (batch or 1, 1, nodes, d_k)
        return (angle.cos() * self.size).to(q.dtype), (angle.sin() * self.size).to(q.dtype)

    def __str__(self) -> str:
        return "rotary"


class Relative:
    """b(x, x̃, h), an offset of the scores that is read from a table by the relation of the two nodes.

    Arguments:
        table: a row for each relation, a column for each head.
        relation: from the grid of x and the grid of x̃ to the row for every pair of nodes.
    """

    def __init__(
        self,
        table: Float[Tensor, "relations heads"],
        relation: Callable[[Grid, Grid], Int[Tensor, "nodes read"]],
    ):
        self.table, self.relation = table, relation

    def __call__(self, x: Grid, read: Grid, dtype: torch.dtype) -> Float[Tensor, "1 heads nodes read"]:
        # Not kept on the grid: where the table is being trained, each call is a computation of its own.
        rows = read.once((self.relation, x.shape), lambda: self.relation(x, read))
        return self.table[rows].permute(2, 0, 1).unsqueeze(0).to(dtype).contiguous()

    def __str__(self) -> str:
        return "relative positions"

    def tex(self) -> str:
        return r"+b(x,\tilde x)"


class Cells(Map):
    """A[u] with the measure restricted to the cell of x: Ω_x is cut into squares, and each node reads its own.

    The cells are folded into the batch, so that a node costs what its cell costs.

    Arguments:
        rate: A.
        size: the nodes along each side of a cell; the grid is first continued by u = 0 to a multiple of it.
        shift: by how many nodes the cells are moved, cyclically, unless a side of Ω_x is one cell; nodes that only the
            cycle brought together don't see one another.

    Liu et al., Swin Transformer, 2021.
    """

    def __init__(self, rate: Map, size: int, shift: int = 0):
        self.rate, self.size, self.shift = rate, size, shift

    def __call__(self, u: Field) -> Field:
        batch = len(u.values)
        rows, columns = u.grid.shape
        H, W = (math.ceil(n / self.size) * self.size for n in (rows, columns))
        v = u.values.unflatten(1, (rows, columns))
        v = torch.nn.functional.pad(v, (0, 0, 0, W - columns, 0, H - rows))
        shift = self.shift if min(rows, columns) > self.size else 0
        if shift:
            v = v.roll((-shift, -shift), (1, 2))
        key = "cells", self.size, shift, batch, v.dtype, v.device
        cell = u.grid.once(key, lambda: self._cell(H, W, shift, v))
        z = self._unfold(self.rate(Field(self._fold(v), cell)).values, batch, H, W)
        if shift:
            z = z.roll((shift, shift), (1, 2))
        return u.like(z[:, :rows, :columns].flatten(1, 2))

    def _fold(self, v: Float[Tensor, "batch H W features"]) -> Float[Tensor, "cells nodes features"]:
        s = self.size
        return v.unflatten(2, (-1, s)).unflatten(1, (-1, s)).transpose(2, 3).flatten(3, 4).flatten(0, 2)

    def _unfold(self, z: Float[Tensor, "cells nodes features"], batch: int, H: int, W: int) -> Tensor:
        s = self.size
        return z.view(batch, H // s, W // s, s, s, -1).transpose(2, 3).reshape(batch, H, W, -1)

    def _cell(self, H: int, W: int, shift: int, v: Tensor) -> Grid:
        """The grid of one cell, with −∞ between nodes that the cyclic shift alone brought together."""
        if not shift:
            return Grid((self.size, self.size))

        def strip(n: int) -> Int[Tensor, " n"]:
            i = torch.arange(n, device=v.device)
            return (i >= n - self.size).long() + (i >= n - shift).long()

        region = (strip(H)[:, None] * 3 + strip(W))[None, :, :, None].to(v.dtype)
        region = self._fold(region).squeeze(-1)  # (cells, nodes)
        apart = region[:, None, :] != region[:, :, None]
        log_weight = torch.zeros(apart.shape, dtype=v.dtype, device=v.device).masked_fill_(apart, -torch.inf)
        return Grid((self.size, self.size), log_weight.unsqueeze(1).repeat(len(v), 1, 1, 1))

    def __str__(self) -> str:
        return f"{self.rate} in cells of {self.size}×{self.size}" + (f", moved by {self.shift}" if self.shift else "")

    def tex(self, u: str) -> str:
        return self.rate.tex(u).replace(r"\Omega_{x}", r"\Omega_{x}\cap C(x)")

    def definitions(self) -> list[str]:
        return [rf"C(x)\;\text{{ is the cell of }}{self.size}\times{self.size}\text{{ nodes around }}x"]
