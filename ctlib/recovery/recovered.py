"""A network written as a splitting scheme, and the call that stands in for the network's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from ctlib.field import Field
from ctlib.recovery.certificate import Certificate, certify_scheme
from ctlib.recovery.parts import changing, require_evaluation
from ctlib.splitting import Sequential


@dataclass(frozen=True, eq=False)
class Recovered:
    """A network as an expression in the algebra.  Called like the network, it returns what the network returns.

    Attributes:
        scheme: the expression; print it to see its tree.  It holds the network's own tensors: what is trained, moved or
            cast in the network is so here.  After replacing a part, a tensor (`assign=True`) or an option of the
            network, or hooking into it, recover it again.
        read: from the network's arguments to the field at t = 0.
        write: from the field at t = T to what the network returns.
        run: the network's own answer, as a tensor, for `certify`.
        same_primitives: whether the network calls the primitives that the scheme calls, so that they round alike.

    Calling it raises RecoveryError when the network drops out at random just then, or the input is of the wrong kind.
    """

    model: nn.Module
    scheme: Sequential
    read: Callable[..., Field]
    write: Callable[..., Tensor]
    run: Callable[..., Tensor]
    same_primitives: bool = True

    def __call__(self, *args, **kwargs) -> Tensor:
        return self.write(self.scheme(self._start(*args, **kwargs)), *args, **kwargs)

    def _start(self, *args, **kwargs) -> Field:
        for path, part in self._changing:
            require_evaluation(self.model, path, part)
        return self.read(*args, **kwargs)

    @cached_property
    def _changing(self) -> list[tuple[str, nn.Module]]:
        return changing(self.model)

    def trajectory(self, *args, **kwargs) -> dict[str, Tensor]:
        """Every fractional state (batch, nodes, features) by name; "3+2/6" is two substeps of six into step 3."""
        return {name: u.values for name, u in self.scheme.trajectory(self._start(*args, **kwargs)).items()}

    def tree(self) -> str:
        """The scheme as an indented tree."""
        return str(self.scheme)

    def substeps(self) -> list[str]:
        """The scheme in fractional steps, a line of LaTeX for each."""
        return self.scheme.substeps()

    def latex(self) -> str:
        """The evolution equation, in LaTeX."""
        return self.scheme.latex()

    @torch.no_grad()
    def certify(self, *args, **kwargs) -> Certificate:
        """Run the network and the scheme on the same arguments and compare them, end to end and at every substep."""
        return certify_scheme(
            self.model,
            self.scheme,
            start=self._start(*args, **kwargs),
            reference=lambda: self.run(*args, **kwargs),
            finish=lambda u: self.write(u, *args, **kwargs),
            same_primitives=self.same_primitives,
        )
