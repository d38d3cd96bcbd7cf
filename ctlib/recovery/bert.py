"""`transformers.BertModel`, the encoder of Devlin et al.: post-norm, GELU, and a normalised sum of embeddings to start.

The reference is its `sdpa` path.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ctlib.field import Field, Grid
from ctlib.operators import Attention
from ctlib.recovery.parts import ACTIVATIONS, RecoveryError, activation, kernel, layer_norm, require, require_known
from ctlib.recovery.recovered import Recovered
from ctlib.splitting import Sequential
from ctlib.substeps import Project, Witness
from ctlib.transformer import FeedForward, post_norm_step

_BERT = "transformers.models.bert.modeling_bert."
MODEL = _BERT + "BertModel"
PARTS = (
    ACTIVATIONS
    | {"torch.nn.modules.container.ModuleList"}
    | {f"torch.nn.modules.{part}" for part in ("dropout.Dropout", "linear.Linear", "normalization.LayerNorm")}
    | {"torch.nn.modules.sparse.Embedding", "torch.nn.modules.activation.Tanh"}
    | {_BERT + "Bert" + part for part in ("Model", "Embeddings", "Encoder", "Layer", "Attention", "SelfAttention")}
    | {_BERT + "Bert" + part for part in ("SelfOutput", "Intermediate", "Output", "Pooler")}
)


def time_step(layer: nn.Module, n: int) -> Sequential:
    """Layer n as time step n."""
    path = f"encoder.layer.{n}."
    a, output = layer.attention.self, layer.attention.output
    attention = Attention(
        kernel(a.query, "W^Q"),
        kernel(a.key, "W^K"),
        kernel(a.value, "W^V"),
        kernel(output.dense, "W^O"),
        a.num_attention_heads,
        scale=a.scaling,  # d_k ** -0.5, which is not always the number nearest to 1/√d_k
    )
    network = FeedForward(
        kernel(layer.intermediate.dense, "W_1"),
        activation(layer.intermediate, "intermediate_act_fn"),
        kernel(layer.output.dense, "W_2"),
    )
    witnesses = (
        Witness(path + "attention.output.LayerNorm", "in"),
        Witness(path + "attention.output.LayerNorm", "out"),
        Witness(path + "intermediate", "out"),
        Witness(path + "output.dense", "out"),
        Witness(path + "output.LayerNorm", "in"),
        Witness(path + "output.LayerNorm", "out"),
    )
    first, second = layer_norm(output.LayerNorm), layer_norm(layer.output.LayerNorm)
    return post_norm_step(attention, first, network, second, witnesses, label=n)


def recover_bert(model: nn.Module) -> Recovered:
    """BertModel as an encoder; the scheme stands for its `last_hidden_state`."""
    require_known(model, PARTS)
    config, embeddings = model.config, model.embeddings
    require(
        not config.is_decoder, model, "config.is_decoder", "only the encoder is known: no cache, no cross-attention."
    )
    sdpa = config._attn_implementation == "sdpa"
    told = f"{config._attn_implementation!r}; call model.set_attn_implementation('sdpa') first."
    require(sdpa, model, "config._attn_implementation", told)
    chunk = config.chunk_size_feed_forward
    told = f"{chunk}; in chunks, the states are never there as a whole. Set it to 0 before building the model."
    require(chunk == 0, model, "config.chunk_size_feed_forward", told)
    start = Project(layer_norm(embeddings.LayerNorm), witness=Witness("embeddings.LayerNorm", "out"))
    steps = [time_step(layer, n) for n, layer in enumerate(model.encoder.layer)]

    def read(
        input_ids: Int[Tensor, "batch nodes"] | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch nodes"] | None = None,
        position_ids: Int[Tensor, "#batch nodes"] | None = None,
        inputs_embeds: Float[Tensor, "batch nodes features"] | None = None,
    ) -> Field:
        if (input_ids is None) == (inputs_embeds is None):
            raise RecoveryError("give exactly one of input_ids and inputs_embeds.")
        words = embeddings.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        if words.dim() != 3:
            raise RecoveryError(f"expected a batch of texts, but the embeddings have the shape {tuple(words.shape)}.")
        batch, n, _ = words.shape
        if position_ids is None:
            if n > config.max_position_embeddings:
                raise RecoveryError(f"{n} tokens, but the model knows {config.max_position_embeddings} positions.")
            position_ids = embeddings.position_ids[:, :n]
        if token_type_ids is None:
            token_type_ids = torch.zeros((batch, n), dtype=torch.long, device=words.device)
        f = words + embeddings.token_type_embeddings(token_type_ids) + embeddings.position_embeddings(position_ids)
        return Field(f, Grid((n,), _log_weight(attention_mask, batch, n, f.dtype)))

    def write(u: Field, *_, **__) -> Tensor:
        return u.values

    def run(*args, **kwargs) -> Tensor:
        return model(*args, **kwargs).last_hidden_state

    return Recovered(model, Sequential(Sequential(start, label="start"), *steps), read, write, run)


def _log_weight(mask: Tensor | None, batch: int, n: int, dtype: torch.dtype) -> Tensor | None:
    """log w of BERT's attention mask: nonzero keeps a token; four axes are passed on to the scores as they are."""
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
    if keep.dtype != torch.bool:
        return keep
    return torch.zeros(keep.shape, dtype=dtype, device=mask.device).masked_fill_(~keep, -torch.inf)
