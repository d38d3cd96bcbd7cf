"""Positions: what they add to a state, to queries and keys, to scores, and to the measure."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import normal

from ctlib import Attention, Explicit, Field, Grid, Kernel, Sequential
from ctlib.positions import Cells, Relative, Rotary, Source

D, HEADS, N = 12, 3, 10


def kernels(seed=0, features=D):
    weights = normal(4, features, features, seed=seed) / features**0.5
    return [Kernel(w) for w in weights]


def rotary():
    return Rotary(lambda: 10.0 ** -torch.linspace(0, 2, D // HEADS // 2))


@given(st.integers(0, 500))
@settings(max_examples=20, deadline=None)
def test_rotated_attention_knows_differences_of_positions_only(shift):
    A = Attention(*kernels(), HEADS, rotary=rotary())
    u, x = normal(2, N, D), torch.arange(N)[None]
    here, there = (A(Field(u, Grid((N,), position=x + s))).values for s in (0, shift))
    assert torch.allclose(here, there, rtol=0, atol=1e-4)  # angles are float32 numbers up to 510


def test_a_rotation_keeps_lengths():
    q = normal(2, HEADS, N, 4)
    turned = Rotary(lambda: torch.tensor([1.0, 0.1]))(q, Grid((N,)))
    assert torch.allclose(turned.norm(dim=-1), q.norm(dim=-1), rtol=1e-6)
    assert torch.equal(turned[..., 0, :], q[..., 0, :])  # at x = 0 nothing turns


def test_an_offset_is_added_to_the_scores():
    table = normal(2 * N - 1, HEADS)

    def relation(x, read):
        i = torch.arange(len(x))
        return i[None] - i[:, None] + N - 1

    Q, K, V, O = kernels()
    u = normal(2, N, D)
    ours = Attention(Q, K, V, O, HEADS, offset=Relative(table, relation))(Field(u)).values
    q, k, v = ((u @ T.weight.T).unflatten(-1, (HEADS, -1)).transpose(1, 2) for T in (Q, K, V))
    b = table[relation(Grid((N,)), None)].permute(2, 0, 1)
    theirs = ((q @ k.mT / (D // HEADS) ** 0.5 + b).softmax(-1) @ v).transpose(1, 2).flatten(2) @ O.weight.T
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-13)


def test_an_offset_and_the_past_alone():
    table = normal(1, HEADS)
    zero = Relative(0 * table, lambda x, read: torch.zeros(len(x), len(read), dtype=torch.long))
    u = Field(normal(2, N, D))
    plain, offset = (Attention(*kernels(), HEADS, causal=True, offset=b)(u).values for b in (None, zero))
    assert torch.allclose(plain, offset, rtol=0, atol=1e-13)


def test_causal_with_weights_is_both():
    w = normal(1, 1, 1, N).abs()
    u = normal(1, N, D)
    A = Attention(*kernels(), HEADS, causal=True)
    both = A(Field(u, Grid((N,), w.log()))).values
    for x in range(N):
        past = Attention(*kernels(), HEADS)(Field(u[:, : x + 1], Grid((x + 1,), w[..., : x + 1].log()))).values
        assert torch.allclose(both[:, x], past[:, x], rtol=0, atol=1e-13)


def test_a_source_does_not_ask_the_state():
    p = normal(1, N, D)
    step = Explicit(Source(lambda grid: p))
    u, v = normal(2, N, D), normal(2, N, D, seed=1)
    assert torch.allclose(step(Field(u)).values - u, step(Field(v)).values - v, rtol=0, atol=1e-14)


def cell_mask(rows, columns, size, shift):
    """Which pairs of nodes share a cell, by their coordinates."""
    i, j = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")

    def block(n, count):
        return torch.where(n < shift, -1, (n - shift) // size) if shift else n // size

    name = (block(i, rows) * 1000 + block(j, columns)).flatten()
    return name[:, None] == name[None]


@given(st.sampled_from([(4, 0), (4, 2), (2, 1), (3, 1)]), st.sampled_from([(8, 8), (12, 8)]))
@settings(max_examples=20, deadline=None)
def test_cells_are_a_restricted_measure(cell, shape):
    size, shift = cell
    if shape[0] % size or shape[1] % size:
        return
    u = normal(2, shape[0] * shape[1], D)
    A = Attention(*kernels(), HEADS)
    folded = Cells(A, size, shift)(Field(u, Grid(shape))).values
    log_weight = (
        torch.zeros(1, 1, len(u[0]), len(u[0])).double().masked_fill(~cell_mask(*shape, size, shift), -torch.inf)
    )
    dense = A(Field(u, Grid(shape, log_weight))).values
    assert torch.allclose(folded, dense, rtol=0, atol=1e-13)


def test_one_cell_is_all_of_the_domain():
    u = Field(normal(2, 16, D), Grid((4, 4)))
    A = Attention(*kernels(), HEADS)
    assert torch.allclose(Cells(A, 4, 2)(u).values, A(u).values, rtol=0, atol=1e-13)


def test_shared_heads_are_repeated_heads():
    """K and V constant in part of h: each of them counted as often as it is shared."""
    q, k, v, o = (w / D**0.5 for w in (normal(D, D), normal(4, D, seed=1), normal(4, D, seed=2), normal(D, D, seed=3)))
    shared = Attention(Kernel(q), Kernel(k), Kernel(v), Kernel(o), 6, shared_heads=2)
    several = [w.view(2, 2, D).repeat_interleave(3, dim=0).flatten(0, 1) for w in (k, v)]
    repeated = Attention(Kernel(q), Kernel(several[0]), Kernel(several[1]), Kernel(o), 6)
    u = Field(normal(2, N, D))
    assert torch.allclose(shared(u).values, repeated(u).values, rtol=0, atol=1e-13)


def test_what_depends_on_the_grid_is_made_once():
    grid, made = Grid((N,)), []
    for _ in range(3):
        assert grid.once("table", lambda: made.append(1) or 7) == 7
    assert made == [1]


def test_what_was_made_in_inference_mode_can_be_differentiated_later():
    u, A = normal(1, N, D), Attention(*kernels(), HEADS, rotary=rotary())
    grid = Grid((N,))
    with torch.inference_mode():
        A(Field(u, grid))
    u.requires_grad_()
    Sequential(Explicit(A))(Field(u, grid)).values.sum().backward()
    assert torch.isfinite(u.grad).all()
