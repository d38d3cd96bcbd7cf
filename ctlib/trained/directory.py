"""A network of one's own, from a directory that `save_pretrained` wrote.

Only safetensors are read: nothing is unpickled, and no code of the directory is run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from ctlib.recovery import ARCHITECTURES
from ctlib.trained.networks import Reader, Trained, Untold
from ctlib.trained.opening import TRANSFORMERS, package, quiet, reading

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth")
#: The classes of `transformers` that can be recovered, by their short names.
KNOWN = {name.rpartition(".")[2] for name in ARCHITECTURES if name.startswith("transformers.")}


def open_directory(path: Path, dtype: torch.dtype) -> Trained:
    """The network in a directory, with its tokenizer if there is one.

    Raises ValueError when the directory isn't a model, its weights are pickled, damaged or not complete, or its class
    can't be recovered; ModuleNotFoundError when a package is missing.
    """
    if not path.is_dir():
        raise ValueError(f"{path} is neither a directory nor the name of a trained network.")
    file = path / "config.json"
    if not file.is_file():
        raise ValueError(f"{path} is not a model: it has no config.json (save_pretrained writes one).")
    try:
        told = json.loads(file.read_text())
    except (OSError, ValueError) as problem:
        raise ValueError(f"{file} can't be read as JSON ({problem}).") from None
    package(str(path), *TRANSFORMERS)
    model = _class(path, told)
    if not any(path.glob("*.safetensors")):
        pickled = next((name for name in PICKLES if (path / name).is_file()), None)
        if pickled is None:
            raise ValueError(f"{path} has no weights: there is no model.safetensors.")
        raise ValueError(
            f"{path / pickled} is pickled, and opening a pickle runs what is in it; save the model as safetensors with "
            "model.save_pretrained(directory)."
        )
    with reading(str(path), path, "is the file whole?"), quiet():
        network, report = model.from_pretrained(
            path,
            dtype=dtype,
            attn_implementation="sdpa" if model._supports_sdpa else None,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    wrong = [str(key) for kind in ("missing_keys", "mismatched_keys") for key in report[kind]]
    wrong = sorted(key for key in wrong if "pooler" not in key)  # a summary that comes after the last state
    if wrong:
        raise ValueError(f"{path}: {len(wrong)} weights are missing or of another shape, such as {wrong[0]}.")
    return _with_input(path, network.eval(), network.config)


def _class(path: Path, told: dict) -> type[nn.Module]:
    """The class to open a directory with: the one that saved it, or the network within it that can be recovered."""
    import transformers

    names = told.get("architectures") or []
    kind = told.get("model_type")
    if names and names[0] in KNOWN:
        return getattr(transformers, names[0])
    known = kind in transformers.CONFIG_MAPPING
    bare = transformers.MODEL_MAPPING.get(transformers.CONFIG_MAPPING[kind], None) if known else None
    if bare is not None and bare.__name__ in KNOWN:
        return bare
    said = names[0] if names else kind or "no class"
    raise ValueError(f"{path}: {said} is not a class that can be recovered; known are {', '.join(sorted(KNOWN))}.")


def _with_input(path: Path, model: nn.Module, config: PreTrainedConfig) -> Trained:
    """The network with a way to put it to the test: its tokenizer, or random input of the right shape."""
    name, words = str(path), getattr(config, "vocab_size", None)
    if words is not None:
        file = path / "tokenizer.json"
        if file.is_file():
            from tokenizers import Tokenizer

            with reading(name, file, "is the file whole?"):
                tokenizer = Tokenizer.from_file(str(file))
            tokenizer.no_truncation()
            tokenizer.no_padding()
            takes = ("input_ids", "attention_mask")
            return Reader(name, model, tokenizer, takes, twice=config.is_encoder_decoder)
        length = min(getattr(config, "max_position_embeddings", None) or 16, 16)
        shapes = {"input_ids": ((2, length), words)}
        if config.is_encoder_decoder:
            shapes["decoder_input_ids"] = ((2, length), words)
        return Untold(name, model, shapes)
    size = getattr(config, "image_size", 224)
    rows, columns = size if isinstance(size, list | tuple) else (size, size)
    frames = (config.num_frames,) if hasattr(config, "num_frames") else ()
    return Untold(name, model, {"pixel_values": (2, *frames, config.num_channels, rows, columns)})
