"""Operators that know how the nodes of Ω_x lie beside one another: images, videos, and changes from one grid to
another.

A node that is apart from the product grid (an atom, such as the class token) takes no part in them: they leave it
alone.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ctlib.field import Field, Grid
from ctlib.operators import Map

#: A field on a product grid as torch's convolutions take it: features first, then the axes of the grid.
Image = Float[Tensor, "batch features *shape"]


def image(u: Field) -> Image:
    """The values on the product grid, as a view."""
    v = u.values[:, u.grid.atoms :] if u.grid.atoms else u.values
    return v.transpose(1, 2).unflatten(2, u.grid.shape)


def with_image(u: Field, z: Image) -> Field:
    """The field that has the values z on the product grid (of its own shape), and u's on the atoms."""
    shape = tuple(z.shape[2:])
    z = z.flatten(2).transpose(1, 2)
    atoms = u.grid.atoms
    grid = u.grid if shape == u.grid.shape else u.grid.once(("shape", shape), lambda: Grid(shape, atoms=atoms))
    return u.like(torch.cat((u.values[:, :atoms], z), dim=1) if atoms else z, grid)


class Convolution(Map):
    """A convolution, a kernel on Ω_x that depends on the difference of two nodes alone:

        (k ∗ u)(x, y) + b(y) = ∫_{Ω_y} ∫_{Ω_x} k(x̃ − x, ξ, y) u(x̃, ξ) dx̃ dξ + b(y)

    u continues by 0 outside the grid.  With a stride s, the result lives on every s-th node: a coarser grid.

    Arguments:
        layer: the torch layer (Conv1d, Conv2d or Conv3d) that holds k, with its quadrature weight multiplied in, and b.
        symbol: the name of k in print.
        part: the features of the layer's input that this field has, where the layer was made for a field with more of
            them: the convolution of two fields side by side is the sum of two convolutions.
        bias: whether b is added.

    The place in the paper: the convolutional vision Transformer, §6.
    """

    def __init__(self, layer: nn.Module, symbol: str = "k", part: slice | None = None, bias: bool = True):
        self.layer, self.symbol, self.part = layer, symbol, part
        self.bias = bias and layer.bias is not None

    def __call__(self, u: Field) -> Field:
        layer = self.layer
        if self.part is None:
            return with_image(u, layer(image(u)))
        bias = layer.bias if self.bias else None
        weight = layer.weight[:, self.part]
        return with_image(u, F.conv2d(image(u), weight, bias, layer.stride, layer.padding, layer.dilation))

    def __str__(self) -> str:
        stride = self.layer.stride[0]
        return f"{self.symbol} ∗" + (f" with stride {stride}" if stride > 1 else "")

    def tex(self, u: str) -> str:
        bias = f"+b_{{{self.symbol}}}" if self.bias else ""
        stride = self.layer.stride[0]
        coarser = rf"\downarrow_{{{stride}}}" if stride > 1 else ""
        return rf"{self.symbol}*{_bracketed(u)}{coarser}{bias}"

    def definitions(self) -> list[str]:
        coarser = self.layer.stride[0] > 1
        return [r"w\downarrow_s\;\text{ is }w\text{ on every }s\text{-th node of each axis}"] * coarser


class Refine(Map):
    """kᵀ ∗ u, the adjoint of a convolution with stride: from a grid to a finer one.

    Arguments:
        layer: the torch layer (ConvTranspose2d) that holds k and the bias.
    """

    def __init__(self, layer: nn.Module, symbol: str = "k"):
        self.layer, self.symbol = layer, symbol

    def __call__(self, u: Field) -> Field:
        return with_image(u, self.layer(image(u)))

    def __str__(self) -> str:
        return f"{self.symbol}ᵀ ∗, to a finer grid"

    def tex(self, u: str) -> str:
        bias = "" if self.layer.bias is None else f"+b_{{{self.symbol}}}"
        return rf"{self.symbol}^{{\top}}*{_bracketed(u)}{bias}"


class Supremum(Map):
    """sup of u over the cell around each node of a coarser grid: max-pooling, a dilation with a flat structuring
    element.

    Arguments:
        layer: the torch layer (MaxPool2d).
    """

    def __init__(self, layer: nn.Module):
        self.layer = layer

    def __call__(self, u: Field) -> Field:
        return with_image(u, self.layer(image(u)))

    def __str__(self) -> str:
        return "supremum over cells"

    def tex(self, u: str) -> str:
        return rf"\sup_{{\tilde x\sim x}}{u}"


class Standardise(Map):
    """Batch normalisation at inference, an affine map of every feature by statistics of the training data:

        u(x, y) ↦ (u(x, y) − μ(y)) / √(s(y) + ε) · g(y) + b(y)

    It is linear and diagonal, and no projection: μ and s don't depend on u.

    Arguments:
        layer: the torch layer (BatchNorm2d), whose buffers hold μ and s.
    """

    def __init__(self, layer: nn.Module):
        self.layer = layer

    def __call__(self, u: Field) -> Field:
        return with_image(u, self.layer(image(u)))

    def __str__(self) -> str:
        return "B"

    def tex(self, u: str) -> str:
        return rf"\mathrm{{B}}\bigl({u}\bigr)"

    def definitions(self) -> list[str]:
        return [r"\mathrm{B}(w)=(w-\mu)/\sqrt{s+\varepsilon}\cdot g+b_{\mathrm{B}}"]


class Adjoin(Map):
    """Ω_x becomes {∗} ⊔ Ω_x: a point apart, an atom of the measure, on which u(∗, y) = c(y).  The class token.

    Arguments:
        value: c.
    """

    makes_new_values = True

    def __init__(self, value: Float[Tensor, "1 atoms features"]):
        self.value = value

    def __call__(self, u: Field) -> Field:
        c = self.value.expand(len(u.values), -1, -1)
        grid = u.grid.once("with an atom", lambda: Grid(u.grid.shape, atoms=c.shape[1]))
        return u.like(torch.cat((c, u.values), dim=1), grid)

    def __str__(self) -> str:
        return "adjoin an atom"

    def tex(self, u: str) -> str:
        return rf"{u}\sqcup c"

    def definitions(self) -> list[str]:
        return [r"w\sqcup c\;\text{ lives on }\;\Omega_x\sqcup\{*\},\text{ with the value }c(y)\text{ at }*"]


class Restrict(Map):
    """u on the atoms of Ω_x alone: from there on, the class token is all that is left of the field."""

    def __call__(self, u: Field) -> Field:
        atoms = u.grid.atoms
        return u.like(u.values[:, :atoms], u.grid.once("atoms", lambda: Grid((atoms,))))

    def __str__(self) -> str:
        return "restrict to the atom"

    def tex(self, u: str) -> str:
        return rf"{u}\big|_{{*}}"


class Gather(Map):
    """Four neighbours become one node with four times the features: the same field on a grid of half the nodes per
    side.

    At an odd border u continues by 0.
    """

    makes_new_values = True

    def __call__(self, u: Field) -> Field:
        rows, columns = u.grid.shape
        v = F.pad(u.values.unflatten(1, (rows, columns)), (0, 0, 0, columns % 2, 0, rows % 2))
        z = torch.cat([v[:, i::2, j::2] for j in range(2) for i in range(2)], dim=-1)
        shape = tuple(z.shape[1:3])
        return u.like(z.flatten(1, 2), u.grid.once(("shape", shape), lambda: Grid(shape)))

    def __str__(self) -> str:
        return "gather 2×2 nodes"

    def tex(self, u: str) -> str:
        return rf"\mathrm{{G}}\,{u}"

    def definitions(self) -> list[str]:
        return [r"\mathrm{G}\,w\;\text{ has four neighbours of }w\text{ as one node with four times the features}"]


class Fibres(Map):
    """A[u] along some axes of a product grid alone, for each place on the others: time for each patch, or the patches
    of each moment.

    Arguments:
        rate: A.
        along: the axes that A sees.
        with_atoms: whether every fibre has the atoms of the grid as well.  What A makes of them is then the mean over
            the fibres; without, the rate is 0 on the atoms.

    Bertasius et al., Is space-time attention all you need for video understanding, 2021.
    """

    def __init__(self, rate: Map, along: tuple[int, ...], with_atoms: bool):
        self.rate, self.along, self.with_atoms = rate, along, with_atoms

    def __call__(self, u: Field) -> Field:
        atoms, shape = u.grid.atoms, u.grid.shape
        across = tuple(i for i in range(len(shape)) if i not in self.along)
        order = [1 + i for i in (*across, *self.along)]
        v = u.values[:, atoms:].unflatten(1, shape).permute(0, *order, -1)  # (batch, across, along, features)
        sizes = v.shape
        v = v.flatten(1 + len(across), -2).flatten(0, len(across))  # (fibres, nodes, features)
        fibres = len(v) // len(u.values)
        c = u.values[:, :atoms]
        if self.with_atoms:
            v = torch.cat((c.repeat_interleave(fibres, dim=0), v), dim=1)
        grid = u.grid.once(
            ("fibres", self.along, self.with_atoms),
            lambda: Grid(tuple(shape[i] for i in self.along), atoms=atoms if self.with_atoms else 0),
        )
        z = self.rate(Field(v, grid)).values
        if self.with_atoms:
            c, z = z[:, :atoms].unflatten(0, (-1, fibres)).mean(dim=1), z[:, atoms:]
        else:
            c = torch.zeros_like(c)
        back = [order.index(1 + i) + 1 for i in range(len(shape))]
        z = z.reshape(sizes).permute(0, *back, -1).flatten(1, -2)
        return u.like(torch.cat((c, z), dim=1))

    def __str__(self) -> str:
        return f"{self.rate} along axes {', '.join(map(str, self.along))}"

    def tex(self, u: str) -> str:
        axes = ",".join(str(i) for i in self.along)
        return self.rate.tex(u).replace(r"\Omega_{x}", rf"\Omega_{{x_{{{axes}}}}}")


def _bracketed(tex: str) -> str:
    return tex if tex.isalnum() or tex.startswith(("u^", r"P_", r"\mathrm", r"\sup")) else rf"\bigl({tex}\bigr)"
