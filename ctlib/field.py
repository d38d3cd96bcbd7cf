"""The state u(x, y) of a Transformer and the domain that it lives on.

x ∈ Ω_x says which token, y ∈ Ω_y which feature.  On a grid, u is a table of numbers with a row for each node of Ω_x
and a column for each node of Ω_y; several such tables are stacked in a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Grid:
    """The nodes of Ω_x, and the measure by which attention integrates over them.

        ∫ f(x̃) μ(x, dx̃)  ≈  Σ_j w(x, x̃_j) f(x̃_j)

    Attention divides by the integral of its own kernel, so a common factor of all weights drops out: a uniform grid
    needs no weights at all.  A weight of zero takes a node out of the domain, as a mask does.

    Arguments:
        shape: the number of nodes along each axis of Ω_x; `(N,)` for a text of N tokens, rows and columns for an image.
        log_weight: log w, broadcastable to (batch, heads, N, N), −∞ where the weight is zero.  None: all weights equal.
        causal: the measure is restricted to x̃ ≤ x, and there is no `log_weight` beside it.
        atoms: the number of points apart from the product grid, which come before its nodes: {∗} ⊔ Ω_x has one.
        position: the coordinate of every node; 0, 1, 2, … unless given.

    The place in the paper: the domain Ω_x of §3, its uniform discretisation in §3.4.
    """

    shape: tuple[int, ...]
    log_weight: Float[Tensor, "#batch #heads #nodes nodes"] | None = None
    causal: bool = False
    atoms: int = 0
    position: Float[Tensor, "#batch nodes"] | None = None
    _made: dict[Hashable, object] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        if self.causal and self.log_weight is not None:
            raise ValueError("Grid: give either causal=True or a log_weight that contains the restriction, not both.")

    def __len__(self) -> int:
        return self.atoms + math.prod(self.shape)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What depends on the grid alone, such as the angles of rotary positions: made when first asked for, then kept.

        `key` says what it is; it names the dtype and the device where the result has them.
        """
        if key not in self._made:
            with torch.inference_mode(False):  # what is kept may be part of a computation that is differentiated later
                self._made[key] = make()
        return self._made[key]


class Field:
    """The values of u on a grid: u(x, y) with x along the second axis and y along the last.

    Arguments:
        values: u, one table for each member of the batch.
        grid: the nodes of Ω_x; a uniform grid of the right size unless given.
        tokens_first: the values came from a network that keeps tokens before batches; see `rowwise`.
        given: another field that operators may read, such as the memory m of an encoder beside a decoder's state.

    Raises ValueError when the values are not (batch, nodes, features), or the grid has another number of nodes.
    """

    __slots__ = ("given", "grid", "tokens_first", "values")

    def __init__(
        self,
        values: Float[Tensor, "batch nodes features"],
        grid: Grid | None = None,
        tokens_first: bool = False,
        given: Field | None = None,
    ):
        if values.dim() != 3:
            raise ValueError(f"Field: values must be (batch, nodes, features), not {tuple(values.shape)}.")
        if grid is None:
            grid = Grid((values.shape[1],))
        elif len(grid) != values.shape[1]:
            raise ValueError(f"Field: {values.shape[1]} rows of values on a grid of {len(grid)} nodes.")
        self.values, self.grid, self.tokens_first, self.given = values, grid, tokens_first, given

    def like(self, values: Float[Tensor, "batch nodes out"], grid: Grid | None = None) -> Field:
        """Other values on the same grid (or another), beside the same given field; the features may differ."""
        return Field(values, self.grid if grid is None else grid, self.tokens_first, self.given)

    def rowwise(self, f: Callable[[Tensor], Tensor]) -> Field:
        """The field f(u), for an f that acts on each token x alone.

        A sum of products rounds differently when the rows come in another order, so the rows go through f in the order
        in which the network keeps them.
        """
        v = self.values
        return self.like(f(v.transpose(0, 1)).transpose(0, 1) if self.tokens_first else f(v))

    def __repr__(self) -> str:
        batch, _, features = self.values.shape
        domain = "×".join(map(str, self.grid.shape)) + (f" + {self.grid.atoms}" if self.grid.atoms else "")
        return f"Field(batch {batch}, Ω_x {domain}, Ω_y {features}, {self.values.dtype})"
