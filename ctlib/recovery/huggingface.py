"""What the models of `transformers` have in common: which path is the reference, and what their masks mean.

The reference is the `sdpa` path of a model: its attention in torch's own `scaled_dot_product_attention`.  (The "eager"
path takes the softmax in float32 even of float64 scores.)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ctlib.field import Field, Grid
from ctlib.recovery.parts import ACTIVATIONS, RecoveryError, require
from ctlib.recovery.recovered import Recovered
from ctlib.splitting import Sequential

#: Parts of torch that the models are made of.
TORCH_PARTS = ACTIVATIONS | {
    "torch.nn.modules.container.ModuleList",
    "torch.nn.modules.container.Sequential",
    "torch.nn.modules.dropout.Dropout",
    "torch.nn.modules.linear.Identity",
    "torch.nn.modules.linear.Linear",
    "torch.nn.modules.normalization.LayerNorm",
    "torch.nn.modules.sparse.Embedding",
}


def parts(module: str, names: str) -> set[str]:
    """The qualified names of several classes of one module of `transformers.models`."""
    return {f"transformers.models.{module}.{name}" for name in names.split()}


def require_sdpa(model: nn.Module) -> None:
    """Check that the model computes its attention by torch's own function."""
    path = model.config._attn_implementation
    require(
        path == "sdpa",
        model,
        "config._attn_implementation",
        f"{path!r}; call model.set_attn_implementation('sdpa') first.",
    )


def require_whole(model: nn.Module) -> None:
    """Check that the feed-forward network sees all tokens at once."""
    chunk = model.config.chunk_size_feed_forward
    told = f"{chunk}; in chunks, the states are never there as a whole. Set it to 0 before building the model."
    require(chunk == 0, model, "config.chunk_size_feed_forward", told)


def embedded(
    embedding: nn.Embedding,
    input_ids: Int[Tensor, "batch nodes"] | None,
    inputs_embeds: Float[Tensor, "batch nodes features"] | None,
    names: tuple[str, str] = ("input_ids", "inputs_embeds"),
) -> Float[Tensor, "batch nodes features"]:
    """The field of a text: a column of numbers for each token, looked up or given."""
    if (input_ids is None) == (inputs_embeds is None):
        raise RecoveryError(f"give exactly one of {names[0]} and {names[1]}.")
    if input_ids is not None and (input_ids.dim() != 2 or input_ids.numel() == 0):
        raise RecoveryError(f"{names[0]}: expected a batch of texts, got the shape {tuple(input_ids.shape)}.")
    words = embedding(input_ids) if inputs_embeds is None else inputs_embeds
    if words.dim() != 3:
        raise RecoveryError(f"expected a batch of texts, but the embeddings have the shape {tuple(words.shape)}.")
    return words


def require_positions(n: int, known: int) -> None:
    """Check that a text is no longer than the positions that the model has learned."""
    if n > known:
        raise RecoveryError(f"{n} tokens, but the model knows {known} positions.")


def log_weight(mask: Tensor | None, batch: int, n: int, dtype: torch.dtype) -> Tensor | None:
    """log w of an attention mask: nonzero keeps a token; four axes are passed on to the scores as they are."""
    if mask is None:
        return None
    if mask.dim() == 4:
        if mask.dtype not in (torch.bool, dtype):
            raise RecoveryError(f"attention_mask: with four axes it must be boolean or {dtype}, got {mask.dtype}.")
        if mask.shape[-1] != n or mask.shape[-2] not in (1, n):
            raise RecoveryError(f"attention_mask: expected (batch, heads, {n}, {n}), got {tuple(mask.shape)}.")
        keep = mask
    elif tuple(mask.shape) == (batch, n):
        keep = mask.to(torch.bool)[:, None, None, :]
        if keep.all():
            return None
    else:
        raise RecoveryError(f"attention_mask: expected the shape {(batch, n)}, got {tuple(mask.shape)}.")
    return logarithm(keep, dtype)


def logarithm(keep: Tensor, dtype: torch.dtype) -> Tensor:
    """log w of a mask that is true where w = 1; numbers are the logarithm already."""
    if keep.dtype != torch.bool:
        return keep
    return torch.zeros(keep.shape, dtype=dtype, device=keep.device).masked_fill_(~keep, -torch.inf)


def causal_grid(
    model: nn.Module,
    f: Float[Tensor, "batch nodes features"],
    attention_mask: Tensor | None,
    position_ids: Int[Tensor, "#batch nodes"],
) -> Grid:
    """The nodes of a text for a model that looks back only, with the tokens that are masked taken out of the measure.

    The model's own function says which pairs of tokens that leaves: where `position_ids` start anew, so does the text,
    unless the model keeps a cache for words to come.
    """
    from transformers.masking_utils import create_causal_mask

    batch, n, _ = f.shape
    if attention_mask is not None and attention_mask.dim() != 4:
        log_weight(attention_mask, batch, n, f.dtype)  # for its complaints
    starts = None if model.config.use_cache else position_ids
    mask = create_causal_mask(model.config, f, attention_mask, None, starts)
    if mask is None:
        return Grid((n,), position=position_ids)
    return Grid((n,), logarithm(mask, f.dtype), position=position_ids)


def values(u: Field, *_, **__) -> Tensor:
    """The answer of a model that returns the field itself."""
    return u.values


def last_hidden_state(model: nn.Module) -> Callable[..., Tensor]:
    """The model's own answer, as a tensor."""
    return lambda *args, **kwargs: model(*args, **kwargs).last_hidden_state


def with_head(model: nn.Module, body: Recovered, head: Sequential) -> Recovered:
    """A model that applies a head to what its body returns, and returns the logits."""

    def run(*args, **kwargs) -> Tensor:
        return model(*args, **kwargs).logits

    return Recovered(model, Sequential(*body.scheme.maps, head), body.read, values, run)
