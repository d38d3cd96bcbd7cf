"""A Transformer as a splitting scheme: fields, operators, sets, substeps, and the networks that they recover."""

from ctlib.field import Field, Grid
from ctlib.operators import Attention, Kernel
from ctlib.recovery import certify, recover
from ctlib.splitting import Parallel, Sequential
from ctlib.substeps import Explicit, Project, Replace

__all__ = [
    "Attention",
    "Explicit",
    "Field",
    "Grid",
    "Kernel",
    "Parallel",
    "Project",
    "Replace",
    "Sequential",
    "certify",
    "recover",
]
