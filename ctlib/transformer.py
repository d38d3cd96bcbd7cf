"""Time steps of the Transformers that networks use, and exact rewritings of them.

The blocks come from elsewhere (drawn at random in a chapter, taken from a trained network in `ctlib.recovery`); this
module only says in which order they act.
"""

from __future__ import annotations

from dataclasses import dataclass

from ctlib.operators import Between, Extend, Map, Product
from ctlib.sets import MeanVariance, Nonnegative, Set
from ctlib.splitting import Parallel, Sequential
from ctlib.substeps import Explicit, Project, Replace, Witness


@dataclass(frozen=True)
class FeedForward:
    """The feed-forward network ⟨W₂, P(⟨W₁, u⟩ + b₁)⟩ + b₂, or gated, ⟨W₂, P(⟨W_g, u⟩ + b_g) · (⟨W₁, u⟩ + b₁)⟩ + b₂.

    Arguments:
        W1, W2: the two kernels; biases included.
        closing: P, the projection on S₂ for ReLU, or another activation.
        gate: W_g, for a gated network (SwiGLU with P = SiLU; Shazeer, GLU variants improve Transformer, 2020).
    """

    W1: Map
    closing: Map
    W2: Map
    gate: Map | None = None

    def operator(self) -> Map:
        """The network as one operator F."""
        if self.gate is None:
            return self.W2 @ self.closing @ self.W1
        return self.W2 @ Product(self.closing @ self.gate, self.W1)


#: Where a network shows the six states of a post-norm step, in order.
PostNormWitnesses = tuple[
    Witness | None, Witness | None, Witness | None, Witness | None, Witness | None, Witness | None
]


def post_norm_step(
    attention: Map,
    first: MeanVariance,
    network: FeedForward,
    second: MeanVariance,
    witnesses: PostNormWitnesses = (None,) * 6,
    label: int | str | None = None,
) -> Sequential:
    """The encoder layer of Vaswani et al. in M = 6 substeps:

        u¹ = u⁰ + A[u⁰],                  u² = P_{S₁}(u¹),
        u³ = P_{S₂}(⟨W₁, u²⟩ + b₁),       u⁴ = ⟨W₂, u³⟩ + b₂,
        u⁵ = u² + u⁴,                     u⁶ = P_{S₁}(u⁵)

    Arguments:
        witnesses: where a network shows u¹ … u⁶.

    The place in the paper: (16)–(21) in v2 as reported, with the sum in place of the mean; see `relaxed`.
    """
    w = witnesses
    return Sequential(
        Explicit(attention, witness=w[0]),
        Project(first, witness=w[1]),
        Parallel(
            Sequential(),
            Sequential(Replace(network.W1, network.closing, witness=w[2]), Replace(network.W2, witness=w[3])),
            weights=(1, 1),
            witness=w[4],
        ),
        Project(second, witness=w[5]),
        label=label,
    )


def pre_norm_step(
    attention: Map,
    first: Set,
    network: Map,
    second: Set,
    witnesses: tuple[Witness | None, Witness | None] = (None, None),
    label: int | str | None = None,
) -> Sequential:
    """A pre-norm layer in M = 2 explicit substeps, the projection inside the operator:

    u¹ = u⁰ + A[P_{S₁}(u⁰)],  u² = u¹ + F[P_{S₁}(u¹)]
    """
    return Sequential(
        Explicit(attention @ first, witness=witnesses[0]),
        Explicit(network @ second, witness=witnesses[1]),
        label=label,
    )


def relaxed(scheme: Sequential) -> Sequential:
    """The paper's form of the same map: the mean ½(u² + u⁴) in place of the sum, then S₁ with ε/4 in place of ε.

    P_{ε/4}(½ v) = P_ε(v), and halving is exact in binary arithmetic: both forms give the same bits.  A sum of branches
    that no projection on S₁ follows stays as it is.
    """

    def halved(step: Parallel) -> Parallel:
        w = step.witness
        return Parallel(
            *step.maps,
            weights=tuple(weight / 2 for weight in step.weights),
            witness=w and w._replace(scale=w.scale / 2),
        )

    maps = [relaxed(m) if isinstance(m, Sequential) else m for m in scheme.maps]
    for i, (a, b) in enumerate(zip(maps, maps[1:])):
        if isinstance(a, Parallel) and isinstance(b, Project) and isinstance(b.onto, MeanVariance):
            maps[i], maps[i + 1] = halved(a), Project(b.onto.scaled(0.5), witness=b.witness)
    return Sequential(*maps, label=scheme.label)


def disjoint_union_step(
    attention: Map,
    first: MeanVariance,
    network: FeedForward,
    second: MeanVariance,
    features: int,
    hidden: int,
) -> Sequential:
    """The encoder layer on the feature domain Ω_y ⊔ Ω_z, with Ω_z for the hidden layer: no mean, no ε/4, no branches.

        u ← u + A[u],  P_{S₁},  u ← (u, 0),  u ← u + ⟨W₁, u⟩ + b₁ on Ω_z,  u ≥ 0 on Ω_z,
        u ← u + ⟨W₂, u⟩ + b₂ on Ω_y,  u ← u on Ω_y,  P_{S₁}

    Arguments:
        features, hidden: the number of nodes of Ω_y and of Ω_z.

    Raises ValueError when the closing of the network isn't the projection on S₂.
    """
    if not isinstance(network.closing, Nonnegative):
        raise ValueError(f"disjoint_union_step: the hidden layer must close with S₂ (ReLU), not {network.closing}.")
    y, z = slice(0, features), slice(features, features + hidden)
    return Sequential(
        Explicit(attention),
        Project(first),
        Replace(Extend(hidden)),
        Explicit(Between(network.W1, y, z, features + hidden)),
        Project(Nonnegative(z)),
        Explicit(Between(network.W2, z, y, features + hidden)),
        Replace(Extend(-hidden)),
        Project(second),
    )
