"""Rewritings of an encoder layer that change nothing."""

import pytest
import torch
from networks import FEATURES, HIDDEN, TOKENS, layer, normal, stack

from ctlib import Field, Parallel, Project, Sequential, recover
from ctlib.recovery.certificate import relative_error
from ctlib.transformer import FeedForward, disjoint_union_step, relaxed

DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def blocks(scheme):
    """The parts of a recovered post-norm step, as `disjoint_union_step` takes them."""
    attend, first, parallel, second = scheme.maps
    W1, W2 = parallel.maps[1].maps
    return attend.rate, first.onto, FeedForward(W1.operator, W1.then, W2.operator), second.onto


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_mean_with_a_quarter_of_epsilon_is_the_sum_bit_for_bit(dtype):
    scheme, u = recover(stack(3, dtype)).scheme, Field(normal(2, TOKENS, FEATURES).to(dtype))
    assert torch.equal(relaxed(scheme)(u).values, scheme(u).values)


def test_the_mean_without_the_quarter_is_not_the_sum():
    scheme, u = recover(layer()).scheme, Field(normal(2, TOKENS, FEATURES))
    *rest, close = relaxed(scheme).maps
    naive = Sequential(*rest, Project(close.onto.scaled(2)))
    assert relative_error(naive(u).values, scheme(u).values) > 1e-6


def test_a_sum_that_no_projection_follows_stays():
    scheme = Sequential(Parallel(Sequential(), Sequential(), weights=(1, 1)))
    assert relaxed(scheme).maps[0].weights == (1, 1)


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_the_disjoint_union_is_the_layer(dtype):
    scheme, u = recover(layer(dtype)).scheme, Field(normal(2, TOKENS, FEATURES).to(dtype))
    union = disjoint_union_step(*blocks(scheme), FEATURES, HIDDEN)
    assert relative_error(union(u).values, scheme(u).values) <= 4 * torch.finfo(dtype).eps


def test_the_disjoint_union_needs_a_projection():
    with pytest.raises(ValueError, match="GELU"):
        disjoint_union_step(*blocks(recover(layer(activation="gelu")).scheme), FEATURES, HIDDEN)
