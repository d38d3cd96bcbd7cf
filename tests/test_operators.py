"""Operators against torch's own modules, and the laws that they obey."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from networks import FEATURES, HEADS, TOKENS, normal
from torch import nn

from ctlib import Attention, Field, Grid, Kernel
from ctlib.operators import Between, Diagonal, Extend, Pointwise, Product
from ctlib.recovery.certificate import relative_error

EPS = torch.finfo(torch.float64).eps


def kernel(seed: int, out: int = FEATURES, bias: bool = True) -> Kernel:
    W = normal(out, FEATURES, seed=seed) / FEATURES**0.5
    return Kernel(W, normal(out, seed=seed + 100) if bias else None)


def attention(bias: bool = True) -> Attention:
    return Attention(*(kernel(seed, bias=bias) for seed in range(4)), heads=HEADS)


def on_grid(values, log_weight):
    return Field(values, Grid((values.shape[1],), log_weight))


@pytest.mark.parametrize("bias", [True, False])
def test_a_kernel_is_a_linear_layer(bias):
    K, u = kernel(0, out=5, bias=bias), normal(2, TOKENS, FEATURES)
    assert torch.equal(K(Field(u)).values, F.linear(u, K.weight, K.bias))


def test_a_kernel_can_be_rows_of_a_packed_weight():
    packed, bias, u = normal(9, FEATURES), normal(9), Field(normal(2, TOKENS, FEATURES))
    part = Kernel(packed, bias, rows=slice(3, 6))
    assert torch.equal(part(u).values, Kernel(packed[3:6], bias[3:6])(u).values)


def test_composition_is_associative_and_applies_the_inner_map_first():
    A, B, C = kernel(0), Pointwise(torch.tanh, "tanh"), kernel(1)
    u = Field(normal(2, TOKENS, FEATURES))
    expected = A(B(C(u))).values
    assert torch.equal(((A @ B) @ C)(u).values, expected)
    assert torch.equal((A @ (B @ C))(u).values, expected)


def test_attention_is_torchs_multi_head_attention():
    A, u = attention(), normal(2, TOKENS, FEATURES)
    reference = nn.MultiheadAttention(FEATURES, HEADS, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat([A.Q.weight, A.K.weight, A.V.weight]))
        reference.in_proj_bias.copy_(torch.cat([A.Q.bias, A.K.bias, A.V.bias]))
        reference.out_proj.weight.copy_(A.O.weight)
        reference.out_proj.bias.copy_(A.O.bias)
        expected = reference(u, u, u)[0]  # with weights asked for, torch takes softmax and products one by one
    assert relative_error(A(Field(u)).values, expected) <= 8 * EPS


@given(st.permutations(range(TOKENS)))
def test_attention_commutes_with_permutations(order):
    A, u = attention(), normal(1, TOKENS, FEATURES)
    assert relative_error(A(Field(u[:, order])).values, A(Field(u)).values[:, order]) <= 16 * EPS


@given(st.lists(st.integers(1, 3), min_size=4, max_size=4))
def test_a_weight_is_a_multiplicity(counts):
    """A node of weight n is the same as n equal nodes."""
    A, u = attention(), normal(1, 4, FEATURES)
    counts = torch.tensor(counts)
    repeated = u.repeat_interleave(counts, dim=1)
    first = counts.cumsum(0) - counts
    weighted = A(on_grid(u, counts.double().log()[None, None, None]))
    assert relative_error(weighted.values, A(Field(repeated)).values[:, first]) <= 16 * EPS


@given(st.floats(-50, 50))
def test_a_common_factor_of_all_weights_drops_out(log_factor):
    A, u = attention(), normal(1, TOKENS, FEATURES)
    weighted = A(on_grid(u, torch.full((1, 1, 1, TOKENS), log_factor, dtype=torch.float64)))
    assert relative_error(weighted.values, A(Field(u)).values) <= 100 * EPS  # s + log w has a size of up to 50


@given(st.sets(st.integers(0, TOKENS - 1), min_size=1, max_size=TOKENS - 1))
def test_a_masked_node_is_a_deleted_one(masked):
    A, u = attention(), normal(1, TOKENS, FEATURES)
    present = [i for i in range(TOKENS) if i not in masked]
    log_weight = torch.full((1, 1, 1, TOKENS), -math.inf, dtype=torch.float64)
    log_weight[..., present] = 0
    assert relative_error(A(on_grid(u, log_weight)).values[:, present], A(Field(u[:, present])).values) <= 16 * EPS


def test_causal_is_the_mask_of_later_nodes():
    A, u = attention(), normal(2, TOKENS, FEATURES)
    later = torch.full((TOKENS, TOKENS), -math.inf, dtype=torch.float64).triu(1)
    explicit = A(on_grid(u, later[None, None])).values
    assert relative_error(A(Field(u, Grid((TOKENS,), causal=True))).values, explicit) <= 8 * EPS


def test_the_key_bias_is_a_gauge():
    A, u = attention(), Field(normal(2, TOKENS, FEATURES))
    shifted = Attention(A.Q, Kernel(A.K.weight, A.K.bias + 1), A.V, A.O, HEADS)
    moved = Attention(Kernel(A.Q.weight, A.Q.bias + 1), A.K, A.V, A.O, HEADS)
    assert relative_error(shifted(u).values, A(u).values) <= 32 * EPS
    assert relative_error(moved(u).values, A(u).values) > 1e-2


def test_an_empty_measure_integrates_to_zero():
    A, u = attention(bias=False), normal(1, TOKENS, FEATURES)
    log_weight = torch.zeros(1, 1, TOKENS, TOKENS, dtype=torch.float64)
    log_weight[..., 2, :] = -math.inf
    rate = A(on_grid(u, log_weight)).values
    assert torch.equal(rate[:, 2], torch.zeros_like(rate[:, 2]))
    assert rate.isfinite().all()


def test_extend_and_restrict_undo_each_other():
    u = Field(normal(2, TOKENS, FEATURES))
    wide = Extend(5)(u)
    assert wide.values.shape[-1] == FEATURES + 5
    assert torch.equal(wide.values[..., FEATURES:], torch.zeros(2, TOKENS, 5, dtype=torch.float64))
    assert torch.equal(Extend(-5)(wide).values, u.values)


def test_a_kernel_between_two_parts_feeds_only_its_target():
    K, u = kernel(0, out=5), Field(normal(2, TOKENS, FEATURES + 5))
    y, z = slice(0, FEATURES), slice(FEATURES, FEATURES + 5)
    rate = Between(K, y, z, FEATURES + 5)(u).values
    assert torch.equal(rate[..., z], K(Field(u.values[..., y])).values)
    assert not rate[..., y].any()


def test_a_product_is_a_gate():
    a, b, u = kernel(0), kernel(1), Field(normal(2, TOKENS, FEATURES))
    gated = Product(Pointwise(F.silu, "SiLU") @ a, b)(u).values
    both = torch.cat((a(u).values * b(u).values, a(u).values), -1)
    assert torch.allclose(gated, F.glu(both), rtol=0, atol=1e-14)


def test_a_diagonal_multiplies_every_feature():
    factor, u = normal(FEATURES), Field(normal(2, TOKENS, FEATURES))
    assert torch.equal(Diagonal(factor)(u).values, u.values * factor)
    assert Diagonal(factor).tex("a+b") == r"\lambda\,\bigl(a+b\bigr)"
    assert Diagonal(factor).tex(r"\langle a+b\rangle") == r"\lambda\,\langle a+b\rangle"
