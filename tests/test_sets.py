"""Sets: calling one gives the nearest point, with the laws of Theorem 3.1."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import FEATURES, normal
from torch import nn

from ctlib import Field
from ctlib.recovery.certificate import relative_error
from ctlib.sets import MeanVariance, Nonnegative, RootMeanSquare

EPS = torch.finfo(torch.float64).eps
SEEDS = st.integers(0, 10_000)
SIZES = st.floats(0.1, 10.0)
MEANS = st.floats(-3.0, 3.0)


def project(S, v):
    return S(Field(v)).values


@given(SEEDS, MEANS, SIZES)
def test_the_projection_has_the_mean_and_the_variance(seed, sigma1, sigma2):
    u = project(MeanVariance(sigma1, sigma2), normal(1, 3, FEATURES, seed=seed))
    assert (u.mean(-1) - sigma1).abs().max() <= 16 * EPS * (abs(sigma1) + sigma2)
    assert (u.var(-1, correction=0) / sigma2**2 - 1).abs().max() <= 64 * EPS * (1 + abs(sigma1) / sigma2) ** 2


@given(SEEDS, MEANS, SIZES)
def test_every_other_point_is_farther_by_the_gap(seed, sigma1, sigma2):
    """‖c − v‖² − ‖u − v‖² = (√β/σ₂) ‖c − u‖²: the nearest point, and the price of missing it."""
    S, v = MeanVariance(sigma1, sigma2), normal(1, 1, FEATURES, seed=seed)
    u, c = project(S, v), project(S, normal(1, 50, FEATURES, seed=seed + 1))
    gap = (c - v).square().mean(-1) - (u - v).square().mean(-1)
    price = v.std(-1, correction=0) / sigma2 * (c - u).square().mean(-1)
    scale = (c - v).square().mean(-1).max()
    assert (gap - price).abs().max() <= 100 * EPS * scale
    assert (gap >= -100 * EPS * scale).all()


@given(SEEDS)
def test_projecting_twice_is_projecting_once(seed):
    once = project(MeanVariance(0.5, 2.0), normal(1, 3, FEATURES, seed=seed))
    assert relative_error(project(MeanVariance(0.5, 2.0), once), once) <= 16 * EPS


@given(SEEDS, SIZES, MEANS)
def test_scale_and_shift_of_the_input_are_invisible(seed, c, k):
    v = normal(1, 3, FEATURES, seed=seed)
    assert relative_error(project(MeanVariance(), c * v + k), project(MeanVariance(), v)) <= 200 * EPS * (
        1 + abs(k) / c
    )


@given(SEEDS, st.sampled_from([torch.float64, torch.float32, torch.bfloat16]), st.sampled_from([0.25, 0.5, 2.0]))
def test_scaling_the_input_scales_epsilon_bit_for_bit(seed, dtype, c):
    """P_{c²ε}(c v) = P_ε(v); with a power of two nothing is rounded."""
    S, v = MeanVariance(eps=2.0**-16), normal(1, 3, FEATURES, seed=seed).to(dtype)
    assert torch.equal(project(S.scaled(c), c * v), project(S, v))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "options", [{}, {"eps": 1e-12}, {"bias": False}, {"elementwise_affine": False}], ids=lambda o: str(o)
)
def test_layer_normalisation_is_the_projection_bit_for_bit(dtype, options):
    norm = nn.LayerNorm(FEATURES, **options, dtype=dtype)
    for p in norm.parameters():
        p.data += normal(FEATURES).to(dtype)
    S = MeanVariance(0.0 if norm.bias is None else norm.bias, 1.0 if norm.weight is None else norm.weight, norm.eps)
    v = normal(2, 5, FEATURES).to(dtype)
    assert torch.equal(project(S, v), norm(v))


def test_functions_and_numbers_mean_the_same():
    v, ones = normal(2, 5, FEATURES), torch.ones(FEATURES, dtype=torch.float64)
    assert relative_error(project(MeanVariance(0.3 * ones, 2 * ones), v), project(MeanVariance(0.3, 2.0), v)) <= 8 * EPS
    assert relative_error(project(MeanVariance(0.3 * ones, 2.0), v), project(MeanVariance(0.3, 2.0), v)) <= 8 * EPS


def test_bessels_correction_misses_the_set():
    v = normal(1, 1, FEATURES)
    wrong = (v - v.mean()) / v.std()
    assert abs(wrong.var(correction=0) - (FEATURES - 1) / FEATURES) <= 16 * EPS


def test_a_constant_has_no_nearest_point_and_epsilon_gives_it_the_mean():
    v = torch.full((1, 1, FEATURES), 3.0, dtype=torch.float64)
    assert project(MeanVariance(), v).isnan().all()
    assert torch.equal(project(MeanVariance(0.5, 2.0, eps=1e-5), v), torch.full_like(v, 0.5))


def test_a_negative_epsilon_is_refused():
    with pytest.raises(ValueError, match="eps"):
        MeanVariance(eps=-1e-5)


@given(SEEDS)
def test_the_rectifier_is_the_nearest_non_negative_point(seed):
    v, c = normal(1, 3, FEATURES, seed=seed), normal(1, 3, FEATURES, seed=seed + 1).abs()
    u = project(Nonnegative(), v)
    assert (u >= 0).all()
    assert ((v - u) * (c - u)).sum() <= 0  # v − u is in the normal cone at u
    assert torch.equal(project(Nonnegative(), u), u)


def test_the_rectifier_on_a_part_leaves_the_rest():
    v, part = normal(2, 3, FEATURES), slice(5, 9)
    u = project(Nonnegative(part), v)
    assert torch.equal(u[..., part], v[..., part].relu())
    u[..., part] = v[..., part]
    assert torch.equal(u, v)


@pytest.mark.parametrize("S", [Nonnegative(), Nonnegative(slice(5, 9)), MeanVariance()], ids=str)
def test_only_overwriting_may_change_the_argument_and_the_result_is_the_same(S):
    v = normal(2, 3, FEATURES)
    expected = project(S, v)
    assert torch.equal(v, normal(2, 3, FEATURES))
    assert torch.equal(S.overwrite(Field(v.clone())).values, expected)


@given(SEEDS, MEANS, SIZES)
def test_the_tangent_projection_is_the_derivative_of_the_projection(seed, sigma1, sigma2):
    onto = MeanVariance(sigma1, sigma2)
    u = onto(Field(normal(1, 2, 6, seed=seed)))
    rate = normal(1, 2, 6, seed=seed + 1)
    _, derivative = torch.autograd.functional.jvp(lambda v: project(onto, v), u.values, rate)
    # σ₂ appears squared below a difference of means: its roundings grow with |σ₁| / σ₂, at most 30 here
    assert relative_error(onto.tangent(u, Field(rate)).values, derivative) <= 1000 * EPS * (1 + abs(sigma1) / sigma2)


def test_a_sphere_of_functions_has_no_such_tangent():
    u = Field(normal(1, 2, 6))
    with pytest.raises(ValueError, match="by numbers"):
        MeanVariance(0.0, torch.ones(6)).tangent(u, u)


@given(SEEDS, SIZES)
def test_rms_norm_is_the_nearest_point_of_its_sphere(seed, size):
    """‖c − v‖² − ‖u − v‖² = ρ‖c − u‖² for every c on the sphere, with means of squares and ρ² that of v."""
    v, c = size * normal(3, 5, FEATURES, seed=seed), normal(3, 5, FEATURES, seed=seed + 1)
    S = RootMeanSquare(torch.ones(FEATURES, dtype=torch.float64))
    u, c = project(S, v), project(S, c)
    rho = v.square().mean(-1).sqrt()
    gap = (c - v).square().mean(-1) - (u - v).square().mean(-1)
    assert torch.allclose(gap, rho * (c - u).square().mean(-1), rtol=0, atol=1e-12 * (1 + size**2))
    assert torch.allclose(u.square().mean(-1), torch.ones(3, 5, dtype=torch.float64), rtol=0, atol=1e-13)
    assert torch.allclose(project(S, u), u, rtol=0, atol=1e-14)


def test_rms_norm_is_torchs():
    gain, v = normal(FEATURES), normal(3, 5, FEATURES, seed=4)
    theirs = nn.functional.rms_norm(v, (FEATURES,), gain, eps=1e-5)
    assert torch.allclose(project(RootMeanSquare(gain, 1e-5), v), theirs, rtol=0, atol=1e-14)


@pytest.mark.parametrize("what", ["state", "norm"])
def test_rms_norm_in_single_precision_is_told_apart(what):
    gain, v = normal(FEATURES), normal(3, 5, FEATURES, seed=4)
    exact, rounded = (project(RootMeanSquare(gain, 1e-5, in_float32=x), v) for x in (None, what))
    assert rounded.dtype == torch.float64
    assert 1e-9 < relative_error(rounded, exact) < 1e-6
