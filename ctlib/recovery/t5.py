"""`transformers.T5Model`, the encoder–decoder of Raffel et al.

Pre-norm, with the sphere S₃ (RMSNorm), scores that are not scaled, and an offset b(x̃ − x) of the scores in place of
positions, the same in every layer.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ctlib.field import Field, Grid
from ctlib.operators import Attention, Exchange, Given, Map
from ctlib.positions import Relative
from ctlib.recovery.huggingface import (
    TORCH_PARTS,
    causal_grid,
    embedded,
    last_hidden_state,
    log_weight,
    parts,
    require_sdpa,
    values,
)
from ctlib.recovery.parts import RecoveryError, activation, kernel, require_known
from ctlib.recovery.recovered import Recovered
from ctlib.sets import RootMeanSquare
from ctlib.splitting import Sequential
from ctlib.substeps import Explicit, Project, Replace, Witness
from ctlib.transformer import FeedForward

_T5 = "t5.modeling_t5"
(MODEL,) = parts(_T5, "T5Model")
PARTS = TORCH_PARTS | parts(
    _T5,
    "T5Model T5Stack T5Block T5LayerSelfAttention T5LayerCrossAttention T5LayerFF T5Attention T5LayerNorm "
    "T5DenseActDense T5DenseGatedActDense",
)


def rms_norm(norm: nn.Module) -> RootMeanSquare:
    """RMSNorm as the projection on S₃.  The size of the state is computed in float32, as the network does."""
    return RootMeanSquare(norm.weight, norm.variance_epsilon, in_float32="norm")


def attention(a: nn.Module, offset: Relative | None = None, reads: Map | None = None) -> Attention:
    """The attention of T5; its scores are not scaled."""
    return Attention(
        kernel(a.q, "W^Q"),
        kernel(a.k, "W^K"),
        kernel(a.v, "W^V"),
        kernel(a.o, "W^O"),
        a.n_heads,
        scale=a.scaling,
        reads=reads,
        causal=a.is_causal,
        offset=offset,
    )


def feed_forward(f: nn.Module) -> Map:
    """The feed-forward network, plain or gated, as one operator."""
    if hasattr(f, "wi"):
        return FeedForward(kernel(f.wi, "W_1"), activation(f, "act"), kernel(f.wo, "W_2")).operator()
    return FeedForward(
        kernel(f.wi_1, "W_1"), activation(f, "act"), kernel(f.wo, "W_2"), gate=kernel(f.wi_0, "W_g")
    ).operator()


def time_step(block: nn.Module, offset: Relative, path: str, n: int) -> Sequential:
    """A layer as time step n: it reads itself, in a decoder also the memory, and then acts on every token alone."""
    own, *cross, last = block.layer
    attentions = [attention(own.SelfAttention, offset)] + [attention(c.EncDecAttention, reads=Given()) for c in cross]
    rates = [*attentions, feed_forward(last.DenseReluDense)]
    return Sequential(
        *(
            Explicit(rate @ rms_norm(layer.layer_norm), witness=Witness(f"{path}.layer.{i}", "out"))
            for i, (rate, layer) in enumerate(zip(rates, block.layer))
        ),
        label=n,
    )


def stack_steps(stack: nn.Module, path: str) -> list[Sequential]:
    """The layers of an encoder or a decoder, and its last projection."""
    first = stack.block[0].layer[0].SelfAttention

    def relation(x: Grid, read: Grid) -> Int[Tensor, "nodes read"]:
        nodes = (torch.arange(len(grid), device=first.q.weight.device) for grid in (read, x))
        y, x_ = next(nodes)[None, :], next(nodes)[:, None]
        return first._relative_position_bucket(
            y - x_,
            bidirectional=not first.is_decoder,
            num_buckets=first.relative_attention_num_buckets,
            max_distance=first.relative_attention_max_distance,
        )

    offset = Relative(first.relative_attention_bias.weight, relation)
    steps = [time_step(block, offset, f"{path}.block.{n}", n) for n, block in enumerate(stack.block)]
    last = Project(rms_norm(stack.final_layer_norm), witness=Witness(f"{path}.final_layer_norm", "out"))
    return [*steps, Sequential(last, label="end")]


def recover_t5(model: nn.Module) -> Recovered:
    """T5Model; the scheme stands for the decoder's `last_hidden_state`."""
    require_known(model, PARTS)
    require_sdpa(model)
    scheme = Sequential(
        Sequential(*stack_steps(model.encoder, "encoder"), label="encoder"),
        Sequential(Replace(Exchange()), label="exchange"),
        Sequential(*stack_steps(model.decoder, "decoder"), label="decoder"),
    )

    def read(
        input_ids: Int[Tensor, "batch nodes"] | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Int[Tensor, "batch nodes"] | None = None,
        decoder_attention_mask: Tensor | None = None,
        inputs_embeds: Float[Tensor, "batch nodes features"] | None = None,
        decoder_inputs_embeds: Float[Tensor, "batch nodes features"] | None = None,
    ) -> Field:
        f = embedded(model.encoder.embed_tokens, input_ids, inputs_embeds)
        names = "decoder_input_ids", "decoder_inputs_embeds"
        g = embedded(model.decoder.embed_tokens, decoder_input_ids, decoder_inputs_embeds, names)
        if f.dtype == torch.float16:
            raise RecoveryError("float16: T5 clamps its states there, which is not known.")
        if len(f) != len(g):
            raise RecoveryError(f"{len(f)} texts for the encoder, but {len(g)} for the decoder.")
        batch, n, _ = f.shape
        positions = torch.arange(g.shape[1], device=g.device)[None]
        grid = causal_grid(model.decoder, g, decoder_attention_mask, positions)
        if grid.log_weight is not None and (grid.log_weight == -torch.inf).all(-1).any():
            raise RecoveryError(
                "decoder_attention_mask: a token is left that sees no other and not itself (T5 then takes the mean of "
                "all values); put the padding on the right."
            )
        own = Grid((n,), log_weight(attention_mask, batch, n, f.dtype))
        return Field(f, own, given=Field(g, grid, given=Field(f, own)))

    return Recovered(model, scheme, read, values, last_hidden_state(model))
