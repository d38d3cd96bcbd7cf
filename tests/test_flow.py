"""Splittings of flows: their orders against scipy's exponential, exactness where parts commute, and how they print."""

import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import normal

from ctlib import Explicit, Field, Kernel
from ctlib.convergence import observed_order
from ctlib.flow import ORDERS, Exact, Implicit, additive, lie, march, reference, strang

N = 6
A, B = (Kernel(normal(N, N, seed=s) / N**0.5, symbol=name) for s, name in ((1, "A"), (2, "B")))
U = Field(normal(1, 3, N, seed=3))


def exact(*kernels, time=1.0):
    total = sum(k.weight for k in kernels)
    return U.values @ torch.from_numpy(scipy.linalg.expm(time * total.numpy())).T


def part(kind, kernel):
    return lambda dt: kind(kernel, dt)


def errors(splitting, parts, reference, steps=(8, 16, 32, 64)):
    return [1 / n for n in steps], [(march(splitting, parts, U, 1.0, n).values - reference).norm() for n in steps]


@pytest.mark.parametrize(("splitting", "order"), ORDERS.items(), ids=lambda value: getattr(value, "__name__", value))
def test_order_with_exact_substeps(splitting, order):
    parts = [part(Exact, A), part(Exact, B)]
    assert observed_order(*errors(splitting, parts, exact(A, B))).slope == pytest.approx(order, abs=0.05)


@pytest.mark.parametrize("kind", [Explicit, Implicit])
def test_euler_substeps_hold_strang_back_to_order_one(kind):
    found = observed_order(*errors(strang, [part(kind, A), part(kind, B)], exact(A, B)))
    assert found.slope == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("splitting", [lie, strang])
def test_commuting_parts_split_without_error(splitting):
    square = Kernel(A.weight @ A.weight, symbol="A^2")
    split = march(splitting, [part(Exact, A), part(Exact, square)], U, 1.0, 1).values
    torch.testing.assert_close(split, exact(A, square), rtol=1e-13, atol=1e-13)


@given(st.floats(-2, 2))
def test_exact_and_implicit_steps_undo_what_they_should(dt):
    there = Exact(A, dt)(U)
    torch.testing.assert_close(Exact(A, -dt)(there).values, U.values, rtol=1e-10, atol=1e-10)
    small = dt / 8
    back = Explicit(A, -small)(Implicit(A, small)(U))  # (I − Δt A) (I − Δt A)⁻¹ = I
    torch.testing.assert_close(back.values, U.values, rtol=1e-10, atol=1e-10)


def test_an_implicit_step_is_stable_where_an_explicit_one_is_not():
    stiff = Kernel(-100 * torch.eye(N, dtype=torch.float64))
    assert march(lie, [part(Implicit, stiff)], U, 1.0, 10).values.norm() < U.values.norm()
    assert march(lie, [part(Explicit, stiff)], U, 1.0, 10).values.norm() > 1e3 * U.values.norm()


def test_a_splitting_prints_as_its_substeps_and_its_equation():
    parts = [part(Exact, A), part(Explicit, B)]
    assert str(strang(parts, 1)).splitlines()[1:] == [
        "  exact step of A over 1/2", "  u + 1/2·B", "  u + 1/2·B", "  exact step of A over 1/2",
    ]  # fmt: skip
    assert r"u_t &= \langle A,u\rangle_{\Omega_y}+\langle B,u\rangle_{\Omega_y} \end" in strang(parts, 1).latex()
    assert str(additive(parts, 1)).splitlines()[:2] == ["parallel, weights 1/2, 1/2", "  exact step of A over 2"]


@pytest.mark.parametrize("kernel", [Kernel(normal(N, N), normal(N)), Kernel(normal(N, N + 1))])
def test_a_kernel_with_bias_or_another_width_has_no_such_step(kernel):
    with pytest.raises(ValueError, match="Exact: the kernel must be square and have no bias"):
        Exact(kernel)


def test_the_reference_is_the_exact_solution():
    def rate(t, u):
        return u.like(u.values @ A.weight.T * 2 * t)  # e^{t²A}

    torch.testing.assert_close(reference(rate, U, 1.0).values, exact(A), rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, on the way to infinity
def test_a_reference_that_blows_up_says_so():
    with pytest.raises(RuntimeError, match="reference: "):
        reference(lambda t, u: u.like(u.values.abs() * u.values.abs() * 100), U, 10.0)
