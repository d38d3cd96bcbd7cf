"""Certificates: a network and its scheme run side by side, compared at every fractional state that the network shows.

Two errors are told for each substep.  The error *so far* compares the states of two whole runs.  The error of the
substep *alone* starts it from the network's own states: a wrong ε then shows at one substep and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ctlib.field import Field
from ctlib.splitting import Parallel, Sequential, walk
from ctlib.substeps import Witness

#: The bound on a relative error, in units of the machine epsilon of the dtype.  The scheme calls the network's own
#: primitives in the network's order, so the expected error is 0.  Where a platform's kernels sum in another order, the
#: two runs are two evaluations of one formula: a state is a sum of some hundred products, whose roundings add like a
#: random walk, and normalisation keeps the field at unit scale, so that they stay at a few epsilon over many layers.
BOUND_IN_EPS = 8
#: The same where the network computes by other primitives than the scheme (a softmax that is written out): the two
#: round differently from the start, and what follows multiplies the difference.
LOOSER_BOUND_IN_EPS = 22


@dataclass(frozen=True)
class SubstepError:
    """The errors of one fractional state, relative in the L² norm of the whole state.

    Attributes:
        name: the fractional time, such as "3+2/6".
        shown_at: the module of the network that shows the state, and on which side.
        relative_error: after running the scheme from the start.
        alone: after running this one substep from the network's own states.
    """

    name: str
    shown_at: str
    relative_error: float
    alone: float


@dataclass(frozen=True)
class Certificate:
    """What a comparison found.  `ok` holds if every error is a number and within `bound`.

    Attributes:
        model: the class of the network.
        dtype: the arithmetic in which both ran.
        bound: the largest relative error allowed, for every state and end to end.
        relative_error: end to end.
        bit_equal: whether the two results agree in every bit.
        substeps: the errors state by state.
        unseen: fractional states that the network doesn't show.
    """

    model: str
    dtype: str
    bound: float
    relative_error: float
    bit_equal: bool
    substeps: tuple[SubstepError, ...]
    unseen: tuple[str, ...]

    @property
    def errors(self) -> list[float]:
        """All relative errors: end to end, then so far and alone at every state."""
        return [self.relative_error, *(e for s in self.substeps for e in (s.relative_error, s.alone))]

    @property
    def worst(self) -> float:
        """The largest of all errors; not a number if one of them is not."""
        return math.nan if any(map(math.isnan, self.errors)) else max(self.errors)

    @property
    def ok(self) -> bool:
        return self.worst <= self.bound

    def as_dict(self) -> dict:
        """The certificate as plain data, for JSON."""
        return {
            "model": self.model,
            "dtype": self.dtype,
            "end_to_end": {"relative_error": self.relative_error, "bound": self.bound, "bit_equal": self.bit_equal},
            "substeps": [{**vars(s), "bound": self.bound} for s in self.substeps],
            "unseen": list(self.unseen),
            "ok": self.ok,
        }

    def __str__(self) -> str:
        named = max([len(s.name) for s in self.substeps] + [12])
        width = max([len(s.shown_at) for s in self.substeps] + [len("shown at")])
        lines = [f"{'state':<{named}} {'shown at':<{width}} {'so far':>9} {'alone':>9}"]
        lines += [
            f"{s.name:<{named}} {s.shown_at:<{width}} {_number(s.relative_error):>9} {_number(s.alone):>9}"
            + ("" if max(s.relative_error, s.alone) <= self.bound else "  above the bound")
            for s in self.substeps
        ]
        eps = torch.finfo(getattr(torch, self.dtype)).eps
        equal = "equal in every bit" if self.bit_equal else "not equal in every bit"
        lines += [
            f"{self.model} in {self.dtype}, end to end: {_number(self.relative_error)}, {equal}.",
            f"Bound: {self.bound:.1e}, which is {self.bound / eps:.0f} machine epsilon.",
            "The splitting scheme is the network." if self.ok else "The splitting scheme is NOT the network.",
        ]
        return "\n".join(lines)


@torch.no_grad()
def certify_scheme(
    model: nn.Module,
    scheme: Sequential,
    start: Field,
    reference: Callable[[], Tensor],
    finish: Callable[[Field], Tensor],
    same_primitives: bool = True,
) -> Certificate:
    """Compare a scheme with the network that it stands for, end to end and at every substep.

    Arguments:
        model: the network; its modules show the states that the scheme's witnesses name.
        start: the field from which the scheme sets out.
        reference: runs the network on the same input and gives its answer.
        finish: from the scheme's last field to an answer.
        same_primitives: whether the network calls the primitives that the scheme calls; decides the bound.
    """
    seen: dict[Witness, Tensor] = {}
    with _general_path(), _witnesses(model, scheme, seen):
        expected = reference()

    so_far: dict[str, float] = {}
    alone: dict[str, float] = {}
    shown_at: dict[str, str] = {}
    unseen: list[str] = []

    def step(name, node, state):
        return node.join(state) if isinstance(node, Parallel) else node(state)

    def compare(name, node, state):
        u = step(name, node, state)
        if node.witness is None:
            unseen.append(name)
        else:
            shown_at[name] = f"{node.witness.module}:{node.witness.side}" + (
                "" if node.witness.scale == 1 else f" × {node.witness.scale}"
            )
            so_far[name] = relative_error(u.values, _shown(seen, node.witness, u))
        return u

    def compare_alone(name, node, state):
        u = step(name, node, state)
        if node.witness is None:
            return u
        truth = _shown(seen, node.witness, u)
        alone[name] = relative_error(u.values, truth)
        return u.like(truth)

    result = finish(walk(scheme, start, compare))
    walk(scheme, start, compare_alone)
    return Certificate(
        model=type(model).__name__,
        dtype=str(result.dtype).removeprefix("torch."),
        bound=(BOUND_IN_EPS if same_primitives else LOOSER_BOUND_IN_EPS) * torch.finfo(result.dtype).eps,
        relative_error=relative_error(result, expected),
        bit_equal=torch.equal(result, expected),
        substeps=tuple(SubstepError(n, shown_at[n], so_far[n], alone[n]) for n in so_far),
        unseen=tuple(unseen),
    )


def relative_error(a: Tensor, b: Tensor) -> float:
    """‖a − b‖ / ‖b‖ in the L² norm of the whole field, in double precision; 0 for two zero fields."""
    difference, size = ((t.double()).norm().item() for t in (a.double() - b.double(), b))
    return 0.0 if difference == 0 else difference / size if size else math.inf


def _number(error: float) -> str:
    return f"{error:.1e}" if error else "0"


def _shown(seen: dict[Witness, Tensor], witness: Witness, u: Field) -> Tensor:
    """The network's own state, in the layout of the field u; where it doesn't show the atoms, these are u's."""
    state = seen[witness._replace(scale=1.0)]
    if state.dim() == 2:
        state = state.unsqueeze(0)
    elif state.dim() > 3:
        state = state.flatten(2).transpose(1, 2)
    elif u.tokens_first:
        state = state.transpose(0, 1)
    if state.shape[1] == len(u.grid) - u.grid.atoms:
        state = torch.cat((u.values[:, : u.grid.atoms], state), dim=1)
    return state if witness.scale == 1 else state * witness.scale


def _recorder(witnesses: list[Witness], seen: dict[Witness, Tensor]) -> Callable[..., None]:
    """A hook that copies what a module shows; a module that acts several times shows one state each time."""
    turns = iter(witnesses)

    def keep(module, args, kwargs, output=None):
        state = next(iter((*args, *kwargs.values()))) if output is None else output
        seen[next(turns)] = (state[0] if isinstance(state, tuple) else state).clone()

    return keep


@contextmanager
def _witnesses(model: nn.Module, scheme: Sequential, seen: dict[Witness, Tensor]):
    """While it lasts, every state that the scheme has a witness for is copied into `seen`."""
    found: dict[Witness, None] = {}  # in the order of time
    walk(scheme, None, lambda name, node, state: found.setdefault(node.witness and node.witness._replace(scale=1.0)))
    wanted: dict[tuple[nn.Module, str], list[Witness]] = {}
    for witness in filter(None, found):
        wanted.setdefault((model.get_submodule(witness.module), witness.side), []).append(witness)
    handles = []
    for (module, side), witnesses in wanted.items():
        register = module.register_forward_pre_hook if side == "in" else module.register_forward_hook
        handles.append(register(_recorder(witnesses, seen), with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _general_path():
    """torch's encoder layer by its parts, not by its fused fast path, whose roundings differ."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
