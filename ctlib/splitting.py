"""Splittings: how substeps are arranged in time, and the fractional states in between.

An equation u_t ∈ A[u] + B[u] − ∂I_S(u) is split when its terms act one after the other (Lie, sequential), or from the
same state and are then added up (parallel); the two may be nested (hybrid).  A scheme is an expression: call it on a
field and it takes the step, print it and it shows its tree.

The place in the paper: Appendix A; the fractional times are those of (16)–(21) in v2 as reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TypeVar

from ctlib.field import Field
from ctlib.operators import Map
from ctlib.substeps import Substep, Witness, factor

State = TypeVar("State")

#: Characters of LaTeX beyond which an equation has a line for each of its terms.
LONGEST_LINE = 120


class Scheme(Map):
    """What sequential and parallel splittings have in common: several maps, and ways to look at them."""

    maps: tuple[Map, ...]

    def heading(self) -> str:
        """The first line of the tree."""
        raise NotImplementedError

    def __str__(self) -> str:
        below = (f"  {line}" for m in self.maps for line in str(m).splitlines())
        return "\n".join([self.heading(), *below])

    def trajectory(self, u: Field) -> dict[str, Field]:
        """Every fractional state by its name, in order, from the same arithmetic as calling the scheme on u."""
        states: dict[str, Field] = {}

        def keep(name, node, state):
            states[name] = node.join(state) if isinstance(node, Parallel) else node(state)
            return states[name]

        walk(self, u, keep)
        return states

    def substeps(self) -> list[str]:
        """The scheme in fractional steps, one line of LaTeX for each."""
        lines = []

        def write(name, node, state):
            new = _state_tex(name)
            if isinstance(node, Parallel):
                right = "+".join(factor(w) + end for w, end in zip(node.weights, state))
            else:
                right = node.tex(state)
            lines.append(f"{new} = {right}")
            return new

        walk(self, "u^{0}", write)
        return lines

    def latex(self) -> str:
        """The evolution equation that the scheme splits, in LaTeX (an `aligned` block).

        Explicit steps and projections contribute terms to u_t; what a time step follows in parts is added up.  A
        substep that replaces the state is a jump u⁺ = …; what comes before the first time step says how u starts.
        Where nothing follows a time step there is no such equation, and the fractional steps are written instead.
        """
        lines: list[str] = []
        terms: dict[str, None] = {}
        step: dict[str, float] = {}  # the terms of the time step at hand, each with its coefficient

        def close_step():
            terms.update(dict.fromkeys(factor(w) + term for term, w in step.items() if w))
            step.clear()

        def close_equation():
            close_step()
            if terms:
                constraints = [t for t in terms if r"\partial" in t]  # a set of normals: the equation is an inclusion
                rates = [t for t in terms if t not in constraints]
                right = "+".join(rates + constraints).replace("+-", "-")
                if len(right) > LONGEST_LINE:
                    right = r" \\ &\quad+".join(rates + constraints).replace("+-", "-")
                relation = r"\in" if constraints else "="
                lines.append(f"u_t &{relation} {right}")
                terms.clear()

        def go(m: Map, in_step: bool):
            if isinstance(m, Sequential):
                for child in m.maps:
                    go(child, in_step if m.label is None else isinstance(m.label, int))
                if isinstance(m.label, int):
                    close_step()
            elif in_step and m.terms() is not None:
                for w, term in m.terms():
                    step[term] = 1 if r"\partial" in term else step.get(term, 0) + w  # twice a cone is the cone
            else:
                close_equation()
                start = not lines
                lines.append(rf"u(\cdot,0) &= {m.tex('f')}" if start else f"u^{{+}} &= {m.tex('u^{-}')}")

        go(self, True)
        close_equation()
        if not any(line.startswith("u_t") for line in lines):
            lines = [line.replace(" = ", " &= ", 1) for line in self.substeps()]
        where = dict.fromkeys(f"&{d}" for n in nodes(self) for d in n.definitions())
        return r"\begin{aligned} " + r" \\ ".join([*lines, *where]) + r" \end{aligned}"


class Sequential(Scheme):
    """Lie splitting: one map after the other, each from where the last one ended.  With no maps, the identity.

    Arguments:
        label: opens a clock of its own.  A number is a time step; a word is something before, between or after them.
    """

    def __init__(self, *maps: Map, label: int | str | None = None):
        self.maps, self.label = maps, label

    def __call__(self, u: Field) -> Field:
        for m in self.maps:
            u = m(u)
        return u

    def heading(self) -> str:
        return "identity" if not self.maps else "sequential" + ("" if self.label is None else f" [{self.label}]")

    def tex(self, u: str) -> str:
        for m in self.maps:
            u = m.tex(u)
        return u


class Parallel(Scheme, Substep):
    """Parallel splitting: every branch B_k starts from the same state, and the ends are added, Σ_k w_k B_k(u).

    Arguments:
        weights: w_k; 1/K each (the mean) unless given.

    Raises ValueError when the branches end on different domains, or there are not as many weights as branches.
    """

    def __init__(self, *maps: Map, weights: tuple[float, ...] | None = None, witness: Witness | None = None):
        if not maps:
            raise ValueError("Parallel: give at least one branch; Sequential() is the identity.")
        if weights is not None and len(weights) != len(maps):
            raise ValueError(f"Parallel: {len(weights)} weights for {len(maps)} branches.")
        self.maps, self.witness = maps, witness
        self.weights = tuple(weights or (1 / len(maps),) * len(maps))

    def __call__(self, u: Field) -> Field:
        return self.join([m(u) for m in self.maps])

    def join(self, ends: list[Field]) -> Field:
        """Σ_k w_k ends_k.  Equal weights are applied once, to the sum."""
        first = ends[0].values
        if any(e.values.shape != first.shape for e in ends):
            told = "; ".join(f"{e.values.shape[1]} nodes, {e.values.shape[2]} features" for e in ends)
            raise ValueError(f"Parallel: the branches end on different domains ({told}), so they can't be added.")
        if len(set(self.weights)) == 1:
            total = sum((e.values for e in ends[1:]), start=first)
            return ends[0].like(total if self.weights[0] == 1 else total * self.weights[0])
        return ends[0].like(sum(w * e.values for w, e in zip(self.weights, ends)))

    def heading(self) -> str:
        return "parallel, weights " + ", ".join(str(Fraction(w).limit_denominator(1000)) for w in self.weights)

    def tex(self, u: str) -> str:
        return "+".join(factor(w) + _bracket(m.tex(u), w) for w, m in zip(self.weights, self.maps))

    def terms(self) -> list[tuple[float, str]]:
        """Σ_k w_k B_k(u) − u: a branch that is the identity with weight 1 is the u that the step starts from."""
        pairs = list(zip(self.weights, self.maps))
        identity = next((p for p in pairs if p[0] == 1 and isinstance(p[1], Sequential) and not p[1].maps), None)
        rates = [(w, _bracket(m.tex("u"), w)) for w, m in pairs if (w, m) != identity]
        return rates if identity else [*rates, (-1, "u")]


def substep_count(scheme: Map) -> int:
    """M, the substeps on the scheme's own clock: a Parallel takes its longest branch and one more, to add up."""
    if isinstance(scheme, Sequential):
        return sum(substep_count(m) for m in scheme.maps if not _has_own_clock(m))
    if isinstance(scheme, Parallel):
        return max(substep_count(m) for m in scheme.maps) + 1
    return 1


def walk(scheme: Map, start: State, apply: Callable[[str, Map, State | list[State]], State]) -> State:
    """Go through the substeps of a scheme in order and carry a state along.

    `apply(name, node, state)` gives the state after the substep `node`; for a Parallel it gets the list of the ends of
    its branches.  The name is the fractional time as the paper writes it: "3+2/6" comes two substeps of six after step
    3; the branches of a Parallel are told apart by a letter, as in "3+4/6b".
    """

    def go(m, state, at, total, clock, branch):
        if isinstance(m, Sequential):
            if m.label is not None:
                at, total, clock, branch = 0, substep_count(m), (*clock, str(m.label)), ""
            for child in m.maps:
                state, then = go(child, state, at, total, clock, branch)
                at = at if _has_own_clock(child) else then
            return state, at
        if isinstance(m, Parallel):
            ends = [go(b, state, at, total, clock, branch + chr(ord("a") + i)) for i, b in enumerate(m.maps)]
            state, at = [end for end, _ in ends], max(at for _, at in ends)
        at += 1
        name = "+".join(filter(None, ("·".join(clock), f"{at}/{total}{branch}")))
        return apply(name, m, state), at

    return go(scheme, start, 0, substep_count(scheme), (), "")[0]


def nodes(m: Map) -> Iterator[Map]:
    """Every map of an expression, outer before inner."""
    yield m
    for part in vars(m).values():
        for child in part if isinstance(part, tuple) else (part,):
            if isinstance(child, Map):
                yield from nodes(child)


def _has_own_clock(m: Map) -> bool:
    return isinstance(m, Sequential) and m.label is not None


def _bracket(tex: str, weight: float) -> str:
    return rf"\bigl({tex}\bigr)" if weight != 1 and "+" in tex else tex


def _state_tex(name: str) -> str:
    """The name "3+4/6b" as a symbol: u with the fractional time above and the branch below."""
    time, branch = name.rstrip("abcdefghijklmnopqrstuvwxyz"), name[len(name.rstrip("abcdefghijklmnopqrstuvwxyz")) :]
    words, plus, fraction = time.rpartition("+")
    above = rf"\text{{{words}}}+{fraction}" if plus and not words.isdigit() else time
    return f"u^{{{above}}}" + (f"_{{{branch}}}" if branch else "")
