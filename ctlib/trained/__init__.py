"""Trained networks, by name or from a directory: nothing is downloaded, and no code that comes with them is run.

`load("minilm")` gives a network together with the way it reads, so that a text is all one needs to put it to the test.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ctlib.trained.directory import open_directory
from ctlib.trained.named import TRAINED
from ctlib.trained.networks import Reader, Trained, Untold, Viewer


def load(name: str, dtype: torch.dtype = torch.float32) -> Trained:
    """A trained network by its name or its directory, its weights rounded to `dtype`.

    Raises ValueError when there is no such network or it can't be read, ModuleNotFoundError when a package is missing
    (it says which one, and how to get it).
    """
    if name in TRAINED:
        return TRAINED[name](dtype)
    if not Path(name).exists() and not any(c in name for c in "/\\."):
        raise ValueError(f"there is no trained network {name!r}, nor a directory; known: {', '.join(TRAINED)}.")
    return open_directory(Path(name), dtype)


__all__ = ["TRAINED", "Reader", "Trained", "Untold", "Viewer", "load"]
