"""A trained network together with the way it reads: texts for some, pictures for others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network.

    Attributes:
        name: its name here, such as "minilm", or the directory that it came from.
        model: the network, in evaluation mode.
    """

    name: str
    model: nn.Module

    def sample(self) -> dict[str, Tensor]:
        """Arguments for the model, to put it to the test with."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Reader(Trained):
    """A network that reads texts.

    Attributes:
        tokenizer: from a text to numbers of tokens.
        takes: the names of what the model takes of them.
        examples: texts of the kind that it was trained on.
        twice: the model has a decoder, which is given the same texts.
        head: from states to a score for every word, where the network was trained to guess hidden ones.
    """

    tokenizer: Tokenizer
    takes: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids")
    examples: tuple[str, ...] = (
        "The cat is asleep on the mat in front of the fire.",
        "A kitten dozes on the rug by the hearth.",
    )
    twice: bool = False
    head: Callable[[Float[Tensor, "... features"]], Float[Tensor, "... words"]] | None = None

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
        arguments = {name: torch.tensor(rows[name]) for name in self.takes}
        return {**arguments, "decoder_input_ids": arguments["input_ids"]} if self.twice else arguments

    def sample(self) -> dict[str, Tensor]:
        return self.inputs(list(self.examples))

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text, with those that open and close it."""
        return self._encode(text).tokens

    def sentence_vectors(
        self, states: Float[Tensor, "batch nodes features"], attention_mask: Int[Tensor, "batch nodes"]
    ) -> Float[Tensor, "batch features"]:
        """One vector for each text, as sentence encoders give it: the mean over its tokens, at unit length."""
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
        positions = getattr(self.model.config, "max_position_embeddings", None)
        if positions is not None and len(code.ids) > positions:
            raise ValueError(f"the text {beginning} has {len(code.ids)} tokens, more than {positions} positions.")
        return code


@dataclass(frozen=True, eq=False)
class Viewer(Trained):
    """A network that looks at pictures.

    Attributes:
        size: rows and columns of the pictures that it was trained on.
        mean, deviation: of every colour, by which pictures are standardised.
    """

    size: int
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    deviation: tuple[float, ...] = (0.229, 0.224, 0.225)

    def picture(self, pixels: Float[Tensor, "rows columns colours"], size: int | None = None) -> Tensor:
        """One picture as the network takes it: its middle square, at the right size, standardised.

        Arguments:
            pixels: colours between 0 and 1.
            size: rows and columns; those that the network was trained on unless given.
        """
        size = size or self.size
        x = pixels.movedim(-1, 0)[None]
        side = min(x.shape[-2:])
        top, left = ((n - side) // 2 for n in x.shape[-2:])
        x = x[..., top : top + side, left : left + side]
        x = F.interpolate(x, (size, size), mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)
        mean, deviation = (torch.tensor(c, dtype=x.dtype).view(1, -1, 1, 1) for c in (self.mean, self.deviation))
        return (x - mean) / deviation

    def inputs(self, files: list[str | Path]) -> dict[str, Float[Tensor, "batch colours rows columns"]]:
        """What the model takes for several picture files: `model(**inputs)`.

        Raises ValueError when a file can't be read as a picture.
        """
        import numpy as np
        from PIL import Image, UnidentifiedImageError

        pictures = []
        for file in files:
            try:
                with Image.open(file) as opened:
                    pixels = np.asarray(opened.convert("RGB"), dtype=np.float64) / 255
            except (OSError, UnidentifiedImageError) as problem:
                raise ValueError(f"{file} can't be read as a picture ({problem}).") from None
            pictures.append(self.picture(torch.from_numpy(pixels)))
        dtype = next(self.model.parameters()).dtype
        return {"pixel_values": torch.cat(pictures).to(dtype)}

    def sample(self) -> dict[str, Tensor]:
        return self.inputs(photographs())


@dataclass(frozen=True, eq=False)
class Untold(Trained):
    """A network that comes without the way it reads: it is put to the test with random input.

    Attributes:
        shapes: the shape of every floating-point argument, or the pair (shape, number of different tokens).
    """

    shapes: dict[str, tuple]

    def sample(self) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(0)
        dtype = next(self.model.parameters()).dtype
        arguments = {}
        for name, shape in self.shapes.items():
            if isinstance(shape[0], tuple):
                arguments[name] = torch.randint(shape[1], shape[0], generator=generator)
            else:
                arguments[name] = torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)
        return arguments


def photographs() -> list[Path]:
    """Two photographs that scikit-learn carries: a temple in China, and a flower."""
    from ctlib.trained.opening import folder

    images = folder("photographs", "sklearn", "scikit-learn") / "datasets" / "images"
    return [images / "china.jpg", images / "flower.jpg"]
