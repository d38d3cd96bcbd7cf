"""Operators on a product grid: atoms are left alone, grids change as they say, and fibres see their own axes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import normal
from torch import nn

from ctlib import Attention, Field, Grid, Kernel
from ctlib.convolutions import (
    Adjoin,
    Convolution,
    Fibres,
    Gather,
    Refine,
    Restrict,
    Standardise,
    Supremum,
    image,
    with_image,
)

D = 6


def field(shape=(6, 8), atoms=1, batch=2, features=D, seed=0):
    nodes = atoms + torch.tensor(shape).prod().item()
    return Field(normal(batch, nodes, features, seed=seed), Grid(shape, atoms=atoms))


def filled(layer, seed=1):
    for i, p in enumerate(layer.parameters()):
        p.data = normal(*p.shape, seed=seed + i)
    return layer.double().eval()


def test_an_image_and_back():
    u = field()
    assert image(u).shape == (2, D, 6, 8)
    assert torch.equal(with_image(u, image(u)).values, u.values)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_convolution_is_torchs_and_leaves_atoms_alone(stride):
    k = filled(nn.Conv2d(D, D, 3, stride=stride, padding=1))
    u = field()
    v = Convolution(k)(u)
    assert torch.equal(v.values[:, :1], u.values[:, :1])
    assert torch.allclose(image(v), k(image(u).contiguous()), rtol=0, atol=1e-13)
    assert len(v.grid) == v.values.shape[1]


@given(st.integers(0, 5), st.integers(0, 7))
@settings(max_examples=20, deadline=None)
def test_a_convolution_moves_with_the_picture(i, j):
    """Equivariance, with a kernel that continues periodically."""
    k = filled(nn.Conv2d(D, D, 3, padding=1, padding_mode="circular"))
    u = field(atoms=0)
    moved = with_image(u, image(u).roll((i, j), (2, 3)))
    assert torch.allclose(
        image(Convolution(k)(moved)), image(Convolution(k)(u)).roll((i, j), (2, 3)), rtol=0, atol=1e-12
    )


def test_two_fields_side_by_side():
    k = filled(nn.Conv2d(2 * D, 5, 3, padding=1))
    u, v = field(atoms=0), field(atoms=0, seed=3)
    both = u.like(torch.cat((u.values, v.values), -1))
    first = Convolution(k, part=slice(0, D))(u).values
    second = Convolution(k, part=slice(D, None), bias=False)(v).values
    assert torch.allclose(first + second, Convolution(k)(both).values, rtol=0, atol=1e-12)


def test_refining_is_the_adjoint_of_coarsening():
    """⟨k ∗ u, v⟩ = ⟨u, kᵀ ∗ v⟩ for a convolution with stride and the transposed one with the same kernel."""
    k = filled(nn.Conv2d(D, 5, 2, stride=2, bias=False))
    t = nn.ConvTranspose2d(5, D, 2, stride=2, bias=False).double()
    t.weight.data = k.weight.data
    u, v = field(atoms=0), field((3, 4), atoms=0, features=5, seed=4)
    with torch.no_grad():
        left = (Convolution(k)(u).values * v.values).sum()
        right = (u.values * Refine(t)(v).values).sum()
    assert torch.allclose(left, right, rtol=1e-13)


def test_a_supremum_is_monotone_and_coarser():
    u = field(atoms=0)
    s = Supremum(nn.MaxPool2d(2))
    above = u.like(u.values + normal(*u.values.shape, seed=2).abs())
    assert (s(above).values >= s(u).values).all()
    assert s(u).grid.shape == (3, 4)


def test_batch_normalisation_is_affine():
    b = filled(nn.BatchNorm2d(D))
    b.running_mean, b.running_var = normal(D, seed=7), normal(D, seed=8).abs()
    B, u, v = Standardise(b), field(atoms=0), field(atoms=0, seed=5)
    middle = B(u.like((u.values + v.values) / 2)).values
    assert torch.allclose(middle, (B(u).values + B(v).values) / 2, rtol=0, atol=1e-12)


def test_an_atom_comes_and_is_all_that_stays():
    u, c = field(atoms=0), normal(1, 1, D, seed=9)
    v = Adjoin(c)(u)
    assert v.grid.atoms == 1
    assert v.grid.shape == u.grid.shape
    assert torch.equal(v.values[:, 1:], u.values)
    assert torch.equal(Restrict()(v).values, c.expand(2, 1, D))


@pytest.mark.parametrize("shape", [(4, 6), (5, 3)])
def test_gathering_keeps_every_value(shape):
    u = field(shape, atoms=0)
    v = Gather()(u)
    assert v.grid.shape == tuple((n + 1) // 2 for n in shape)
    assert v.values.shape[-1] == 4 * D
    assert torch.allclose(v.values.square().sum(), u.values.square().sum())


def attention():
    return Attention(*(Kernel(w / D**0.5) for w in normal(4, D, D)), 2)


def test_fibres_see_their_own_axis_alone():
    u = field((3, 4, 5), atoms=1)
    A = Fibres(attention(), along=(2,), with_atoms=False)
    other = u.values.clone()
    other[:, 1] += normal(D, seed=3)  # place (0, 0), time 0
    moved = (A(u.like(other)).values - A(u).values).norm(dim=-1)[0]
    assert (moved[1:6] > 0).all()  # the same place at all times
    assert moved[6:].abs().max() == 0
    assert moved[0] == 0


def test_all_axes_are_the_whole_domain():
    u = field((3, 4, 5), atoms=1)
    whole = attention()(u).values
    assert torch.allclose(Fibres(attention(), (0, 1, 2), with_atoms=True)(u).values, whole, rtol=0, atol=1e-13)


def test_fibres_of_one_node_with_atoms_take_the_mean():
    """What A makes of the atom is averaged over the fibres."""
    u = field((3, 4), atoms=1)
    out = Fibres(attention(), (1,), with_atoms=True)(u).values
    rows = u.values[:, 1:].view(2, 3, 4, D)
    each = [attention()(Field(torch.cat((u.values[:, :1], rows[:, i]), 1))).values for i in range(3)]
    assert torch.allclose(out[:, 0], torch.stack([e[:, 0] for e in each]).mean(0), rtol=0, atol=1e-13)
    assert torch.allclose(out[:, 1:].view(2, 3, 4, D)[:, 1], each[1][:, 1:], rtol=0, atol=1e-13)
