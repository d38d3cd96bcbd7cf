"""Substeps and splittings: what they compute, how their states are called, how they are written."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import FEATURES, HIDDEN, TOKENS, layer, normal, stack

from ctlib import Explicit, Field, Kernel, Parallel, Project, Replace, Sequential, recover
from ctlib.operators import Pointwise
from ctlib.sets import Nonnegative
from ctlib.splitting import substep_count

U = Field(normal(2, TOKENS, FEATURES))
A = Kernel(normal(FEATURES, FEATURES, seed=1), symbol="A")
WIDE = Kernel(normal(HIDDEN, FEATURES, seed=2), symbol="B")

leaves = st.sampled_from([Explicit(A), Explicit(A, 0.5), Project(Nonnegative()), Replace(A), Replace(A, Nonnegative())])
schemes = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda maps: Sequential(*maps)),
        st.lists(inner, min_size=1, max_size=3).map(lambda maps: Parallel(*maps)),
    ),
    max_leaves=6,
).map(lambda scheme: Sequential(scheme))


def test_explicit_is_a_forward_euler_step():
    assert torch.equal(Explicit(A)(U).values, U.values + A(U).values)
    assert torch.equal(Explicit(A, 0.25)(U).values, U.values + 0.25 * A(U).values)


def test_replace_closes_what_it_computed():
    assert torch.equal(Replace(A)(U).values, A(U).values)
    assert torch.equal(Replace(A, Nonnegative())(U).values, A(U).values.relu())


def test_replace_never_changes_its_argument():
    before = U.values.clone()
    Replace(Pointwise(lambda v: v, "identity"), Nonnegative())(U)
    assert torch.equal(U.values, before)


def test_the_empty_sequence_is_the_identity():
    assert Sequential()(U) is U


def test_sequential_goes_in_order():
    first, second = Explicit(A), Project(Nonnegative())
    assert torch.equal(Sequential(first, second)(U).values, second(first(U)).values)
    assert not torch.equal(Sequential(second, first)(U).values, second(first(U)).values)


def test_parallel_is_the_mean_unless_weighted():
    branches = Explicit(A), Project(Nonnegative())
    ends = [b(U).values for b in branches]
    assert torch.equal(Parallel(*branches)(U).values, 0.5 * (ends[0] + ends[1]))
    assert torch.equal(Parallel(*branches, weights=(1, 1))(U).values, ends[0] + ends[1])
    assert torch.equal(Parallel(*branches, weights=(0.25, 2.0))(U).values, 0.25 * ends[0] + 2.0 * ends[1])


def test_parallel_refuses_branches_that_end_apart():
    with pytest.raises(ValueError, match=f"{FEATURES} features; {TOKENS} nodes, {HIDDEN} features"):
        Parallel(Sequential(), Replace(WIDE))(U)


def test_parallel_refuses_weights_that_do_not_fit():
    with pytest.raises(ValueError, match="1 weights for 2 branches"):
        Parallel(Sequential(), Explicit(A), weights=(1,))
    with pytest.raises(ValueError, match="at least one branch"):
        Parallel()


@given(schemes)
def test_a_trajectory_ends_where_the_call_ends(scheme):
    states = scheme.trajectory(U)
    assert torch.equal(list(states.values())[-1].values, scheme(U).values)


@given(schemes)
def test_every_state_has_a_name_of_its_own_and_a_line(scheme):
    states = scheme.trajectory(U)
    lines = scheme.substeps()
    assert len(lines) == len(states)
    assert len({line.split(" = ")[0] for line in lines}) == len(lines)
    assert all(line.count("{") == line.count("}") for line in lines)


@given(schemes)
def test_the_last_state_stands_at_the_end_of_the_clock(scheme):
    M = substep_count(scheme)
    assert list(scheme.trajectory(U))[-1].startswith(f"{M}/{M}")


@given(schemes)
def test_a_trajectory_leaves_no_state_overwritten(scheme):
    states = {name: (u, u.values.clone()) for name, u in scheme.trajectory(U).items()}
    scheme(U)
    assert all(torch.equal(u.values, copy) for u, copy in states.values())


def test_an_encoder_layer_has_four_plus_two_substeps():
    scheme = recover(layer()).scheme
    assert substep_count(scheme) == 4 + 2
    assert list(scheme.trajectory(U)) == ["1/6", "2/6", "3/6b", "4/6b", "5/6", "6/6"]


def test_the_states_of_a_stack_count_time_steps():
    names = list(recover(stack(2, norm=torch.nn.LayerNorm(FEATURES))).scheme.trajectory(U))
    assert names[:2] == ["0+1/6", "0+2/6"]
    assert names[-2:] == ["1+6/6", "end+1/1"]


def test_the_tree_names_every_substep():
    assert str(recover(layer()).scheme).splitlines() == [
        "sequential",
        "  u + A (3 heads)",
        "  project on S₁ (ε = 1e-05)",
        "  parallel, weights 1, 1",
        "    identity",
        "    sequential",
        "      apply W_1, then S₂",
        "      apply W_2",
        "  project on S₁ (ε = 1e-05)",
    ]


def test_the_substeps_are_written_with_their_fractional_times():
    lines = recover(stack(2)).substeps()
    assert lines[1] == r"u^{0+2/6} = P_{S_1}\bigl(u^{0+1/6}\bigr)"
    assert lines[4] == "u^{0+5/6} = u^{0+2/6}+u^{0+4/6}_{b}"
    assert lines[6].startswith("u^{1+1/6} = u^{0+6/6}+")


def test_the_equation_adds_rates_and_takes_away_normals():
    tex = recover(layer()).latex()
    rate, network, normals = (
        tex.index(r"\gamma(\cdot\,;u)"),
        tex.index(r"\langle W_2,P_{S_2}"),
        tex.index(r"-\partial I_{S_1}(u)"),
    )
    assert tex.index(r"u_t &\in") < rate < network < normals
    assert tex.count("{") == tex.count("}")
    assert tex.count(r"\bigl") == tex.count(r"\bigr")


def test_equal_steps_make_one_equation():
    one, three = recover(stack(1)).latex(), recover(stack(3)).latex()
    assert one == three


def test_a_pre_norm_layer_has_no_constraint_of_its_own():
    tex = recover(layer(norm_first=True)).latex()
    assert "u_t &= " in tex
    assert r"\partial" not in tex
    assert r"P_{S_1}\bigl(u\bigr)" in tex


def test_a_replaced_state_is_a_jump():
    tex = Sequential(Explicit(A), Replace(WIDE)).latex()
    assert r"u_t &= \langle A,u\rangle_{\Omega_y}" in tex
    assert r"u^{+} &= \langle B,u^{-}\rangle_{\Omega_y}" in tex


def test_a_mean_says_where_it_pulls():
    tex = Sequential(Parallel(Sequential(), Replace(A))).latex()
    assert r"u_t &= -1/2\,u+1/2\,\langle A,u\rangle_{\Omega_y}" in tex
