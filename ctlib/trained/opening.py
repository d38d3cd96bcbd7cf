"""What it takes to open a trained network: packages that may be missing, damaged files, and a quiet library."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

TRANSFORMERS = "transformers", '"transformers>=5,<6"'


def package(name: str, module: str, install: str) -> ModuleType:
    """Import a package that the network `name` needs.

    Raises ModuleNotFoundError saying how to install it.
    """
    if find_spec(module) is None:
        raise ModuleNotFoundError(f"{name}: the package {module} is missing; run: python -m pip install {install}")
    with warnings.catch_warnings():  # in a notebook without widgets, progress bars warn when they are imported
        warnings.filterwarnings("ignore", message="IProgress not found")
        return import_module(module)


def folder(name: str, module: str, install: str) -> Path:
    """Where a package lies, without importing it: it may want packages of its own that are not needed here."""
    found = find_spec(module)
    if found is None:
        raise ModuleNotFoundError(f"{name}: the package {module} is missing; run: python -m pip install {install}")
    return Path(found.submodule_search_locations[0])


@contextmanager
def reading(name: str, place: Path, then: str = "install the package again"):
    """While it lasts, whatever a reader of files raises becomes one ValueError: which file, why, what to do."""
    try:
        yield
    except (ModuleNotFoundError, MemoryError, KeyboardInterrupt):
        raise
    except Exception as problem:  # each reader has an error of its own for a file that is missing or damaged
        why = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        raise ValueError(f"{name}: {place} can't be read ({why}); {then}.") from problem


@contextmanager
def quiet():
    """While it lasts, transformers neither draws progress bars nor warns; the caller checks what could go wrong."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def without_weights(model: type[nn.Module], config: PreTrainedConfig) -> nn.Module:
    """A model whose parameters take no memory yet."""
    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        return model(config).eval()


def fill(model: nn.Module, name: str, tensor: Callable[[str], Tensor | None], dtype: torch.dtype) -> None:
    """Give a model its parameters one after the other, so that only one is in memory twice.

    Raises ValueError when one is missing or has another shape.
    """
    shared: dict[int, nn.Parameter] = {}
    for path, parameter in list(model.named_parameters(remove_duplicate=False)):
        owner, _, leaf = path.rpartition(".")
        if id(parameter) not in shared:
            values = tensor(path)
            if values is None or values.shape != parameter.shape:
                told = "missing" if values is None else f"{tuple(values.shape)}, not {tuple(parameter.shape)}"
                raise ValueError(f"{name}: the weight {path} is {told}; install the package again.")
            shared[id(parameter)] = nn.Parameter(values.to(dtype), requires_grad=False)
        setattr(model.get_submodule(owner), leaf, shared[id(parameter)])
