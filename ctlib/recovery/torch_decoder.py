"""`torch.nn.TransformerDecoderLayer`, `torch.nn.TransformerDecoder` and the whole `torch.nn.Transformer`.

A decoder has one operator more than an encoder: attention that integrates over the domain of another field, the memory
m that the encoder left.  The reference is torch's general path, as for the encoder.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from ctlib.field import Field
from ctlib.operators import Exchange, Given
from ctlib.recovery.parts import RecoveryError, layer_norm, require, require_known
from ctlib.recovery.recovered import Recovered
from ctlib.recovery.torch_encoder import (
    PARTS,
    SOURCE,
    STACK,
    Mask,
    Measure,
    as_given,
    attention,
    batch_first,
    detect_causal,
    feed_forward,
    field,
    post_norm_witnesses,
    shown_in,
    stack_steps,
    time_step,
)
from ctlib.splitting import Sequential
from ctlib.substeps import Explicit, Project, Replace
from ctlib.transformer import post_norm_step, pre_norm_step

LAYER = "torch.nn.modules.transformer.TransformerDecoderLayer"
STACK_OF_DECODERS = "torch.nn.modules.transformer.TransformerDecoder"
WHOLE = "torch.nn.modules.transformer.Transformer"
TARGET = ("tgt", "tgt_mask", "tgt_key_padding_mask")


def decoder_step(layer: nn.TransformerDecoderLayer, path: str = "", label: int | None = None) -> Sequential:
    """One decoder layer as one time step: self-attention, then an encoder step with the cross-attention A_m.

    Post-norm, in M = 8 substeps:

        u¹ = u⁰ + A[u⁰],   u² = P(u¹),   u³ = u² + A_m[u²],   u⁴ = P(u³),
        u⁵ = P_{S₂}(⟨W₁, u⁴⟩ + b₁),   u⁶ = ⟨W₂, u⁵⟩ + b₂,   u⁷ = u⁴ + u⁶,   u⁸ = P(u⁷)

    Pre-norm, in M = 3, with each projection inside its operator.
    """
    shown = shown_in(path)
    own, first = attention(layer.self_attn), layer_norm(layer.norm1)
    cross, network = attention(layer.multihead_attn, reads=Given()), feed_forward(layer)
    second, third = layer_norm(layer.norm2), layer_norm(layer.norm3)
    if layer.norm_first:
        witnesses = shown("norm3", "in"), shown("", "out")
        encoder_step = pre_norm_step(cross, second, network.operator(), third, witnesses)
        return Sequential(Explicit(own @ first, witness=shown("norm2", "in")), *encoder_step.maps, label=label)
    witnesses = post_norm_witnesses(shown, "norm2", "norm3")
    return Sequential(
        Explicit(own, witness=shown("norm1", "in")),
        Project(first, witness=shown("norm1", "out")),
        *post_norm_step(cross, second, network, third, witnesses).maps,
        label=label,
    )


def _memory(
    attn: nn.MultiheadAttention,
    tgt: Tensor,
    memory: Tensor,
    masks: tuple[Mask | None, Mask | None],
    causal: bool,
) -> Field:
    """The memory with the measure by which the decoder's cross-attention integrates over it."""
    u, _ = batch_first("tgt", tgt, attn)
    m, tokens_first = batch_first("memory", memory, attn)
    if tgt.dim() != memory.dim() or len(u) != len(m):
        raise RecoveryError(f"tgt and memory must be the same texts; got {tuple(tgt.shape)} and {tuple(memory.shape)}.")
    names = "memory_mask", "memory_key_padding_mask"
    grid = Measure(attn.num_heads, u, m, memory.dim() == 3).grid(names, *masks, causal)
    return Field(m, grid, tokens_first)


def _recover(model: nn.Module, attn: nn.MultiheadAttention, scheme: Sequential, detects: bool) -> Recovered:
    """A decoder layer, or a stack of them that `detects` a causal mask when it isn't told."""

    def read(
        tgt: Float[Tensor, "..."],
        memory: Float[Tensor, "..."],
        tgt_mask: Mask | None = None,
        memory_mask: Mask | None = None,
        tgt_key_padding_mask: Mask | None = None,
        memory_key_padding_mask: Mask | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Field:
        m = _memory(attn, tgt, memory, (memory_mask, memory_key_padding_mask), memory_is_causal)
        causal = detect_causal(tgt_mask, tgt_is_causal) if detects else bool(tgt_is_causal)
        return field(attn, TARGET, tgt, (tgt_mask, tgt_key_padding_mask), causal, given=m)

    def write(u: Field, tgt: Tensor, *_, **__) -> Tensor:
        return as_given(u, tgt)

    return Recovered(model, scheme, read, write, model)


def recover_decoder_layer(layer: nn.TransformerDecoderLayer) -> Recovered:
    """One decoder layer, called with tgt and memory."""
    require_known(layer, PARTS | {LAYER})
    _agree(layer)
    return _recover(layer, layer.self_attn, decoder_step(layer), detects=False)


def recover_decoder(stack: nn.TransformerDecoder) -> Recovered:
    """A stack of decoder layers, one time step each, and the final normalisation if there is one."""
    require_known(stack, PARTS | {LAYER, STACK_OF_DECODERS})
    steps = stack_steps(stack, decoder_step)
    for layer in stack.layers:
        _agree(layer)
    return _recover(stack, stack.layers[0].self_attn, Sequential(*steps), detects=True)


def _agree(layer: nn.TransformerDecoderLayer) -> None:
    same = layer.self_attn.batch_first == layer.multihead_attn.batch_first
    require(same, layer.multihead_attn, "batch_first", "both attentions of a layer must agree on it.")


def recover_transformer(model: nn.Transformer) -> Recovered:
    """The whole encoder–decoder of Vaswani et al. as one scheme.

    The field of the encoder moves first while that of the decoder waits; then they change places, and the decoder's
    moves on beside the memory that the encoder left.
    """
    require_known(model, PARTS | {STACK, LAYER, STACK_OF_DECODERS, WHOLE})
    encoder, decoder = model.encoder, model.decoder
    scheme = Sequential(
        Sequential(*stack_steps(encoder, time_step, "encoder."), label="encoder"),
        Sequential(Replace(Exchange()), label="exchange"),
        Sequential(*stack_steps(decoder, decoder_step, "decoder."), label="decoder"),
    )
    for layer in decoder.layers:
        _agree(layer)
    own, cross = encoder.layers[0].self_attn, decoder.layers[0].self_attn
    require(own.batch_first == cross.batch_first, model, "batch_first", "encoder and decoder must agree on it.")

    def read(
        src: Float[Tensor, "..."],
        tgt: Float[Tensor, "..."],
        src_mask: Mask | None = None,
        tgt_mask: Mask | None = None,
        memory_mask: Mask | None = None,
        src_key_padding_mask: Mask | None = None,
        tgt_key_padding_mask: Mask | None = None,
        memory_key_padding_mask: Mask | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Field:
        memory = _memory(cross, tgt, src, (memory_mask, memory_key_padding_mask), memory_is_causal)
        causal = detect_causal(tgt_mask, tgt_is_causal)
        waiting = field(cross, TARGET, tgt, (tgt_mask, tgt_key_padding_mask), causal, given=memory)
        causal = detect_causal(src_mask, src_is_causal)
        return field(own, SOURCE, src, (src_mask, src_key_padding_mask), causal, given=waiting)

    def write(u: Field, src: Tensor, tgt: Tensor, *_, **__) -> Tensor:
        return as_given(u, tgt)

    return Recovered(model, scheme, read, write, model)
