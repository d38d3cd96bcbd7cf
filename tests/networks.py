"""Networks with random parameters, drawn in float64 and cast, for the tests to recover."""

import torch
from torch import nn

from ctlib.book.networks import draw_parameters

FEATURES, HEADS, HIDDEN, TOKENS, BATCH = 24, 3, 40, 7, 2


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    """Standard normal numbers in float64, the same for the same seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw(model: nn.Module, dtype: torch.dtype = torch.float64, seed: int = 1) -> nn.Module:
    """Give a model random parameters, the same for the same seed; ready to evaluate."""
    generator = torch.Generator().manual_seed(seed)
    return draw_parameters(model, lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


def layer(dtype: torch.dtype = torch.float64, **options) -> nn.TransformerEncoderLayer:
    """One encoder layer, batch first unless told otherwise."""
    return draw(nn.TransformerEncoderLayer(FEATURES, HEADS, HIDDEN, **{"batch_first": True, **options}), dtype)


def stack(depth: int, dtype: torch.dtype = torch.float64, norm: nn.Module | None = None, **options):
    """A stack of encoder layers."""
    one = nn.TransformerEncoderLayer(FEATURES, HEADS, HIDDEN, **{"batch_first": True, **options})
    return draw(nn.TransformerEncoder(one, depth, norm, enable_nested_tensor=False), dtype)


def bert(dtype: torch.dtype = torch.float64, **options):
    """A small BertModel."""
    from transformers import BertConfig, BertModel

    config = {
        "vocab_size": 50,
        "hidden_size": FEATURES,
        "num_hidden_layers": 3,
        "num_attention_heads": HEADS,
        "intermediate_size": HIDDEN,
        "max_position_embeddings": 16,
    }
    return draw(BertModel(BertConfig(**{**config, **options})), dtype)
