"""Fields and grids: what they hold and what they refuse."""

import pytest
import torch
from networks import normal

from ctlib import Field, Grid


def test_a_field_makes_its_own_uniform_grid():
    u = Field(normal(2, 5, 3))
    assert len(u.grid) == 5
    assert u.grid.log_weight is None
    assert not u.grid.causal


def test_a_grid_of_a_product_counts_all_nodes():
    assert len(Grid((4, 6))) == 24


@pytest.mark.parametrize("shape", [(5,), (5, 3), (1, 2, 5, 3)])
def test_values_need_three_axes(shape):
    with pytest.raises(ValueError, match="batch, nodes, features"):
        Field(normal(*shape))


def test_the_grid_must_fit():
    with pytest.raises(ValueError, match="5 rows of values on a grid of 4 nodes"):
        Field(normal(2, 5, 3), Grid((4,)))


def test_a_causal_grid_has_no_weights_beside_it():
    with pytest.raises(ValueError, match="not both"):
        Grid((3,), log_weight=torch.zeros(3, 3), causal=True)


@pytest.mark.parametrize("tokens_first", [False, True])
def test_rowwise_is_the_function_on_every_row(tokens_first):
    u = Field(normal(2, 5, 3), tokens_first=tokens_first)
    assert torch.equal(u.rowwise(lambda v: 2 * v).values, 2 * u.values)
    assert u.rowwise(lambda v: v).tokens_first == tokens_first
