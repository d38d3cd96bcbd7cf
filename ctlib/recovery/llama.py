"""`transformers.LlamaModel` and `LlamaForCausalLM`, the language model of Touvron et al.

Pre-norm and causal like GPT-2, with the sphere S₃ in place of S₁ (RMSNorm), rotated queries and keys, keys and values
that several heads share, and a gated feed-forward network.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ctlib.field import Field
from ctlib.operators import Attention
from ctlib.positions import Rotary
from ctlib.recovery.huggingface import (
    TORCH_PARTS,
    causal_grid,
    embedded,
    last_hidden_state,
    parts,
    require_sdpa,
    values,
    with_head,
)
from ctlib.recovery.parts import activation, kernel, require, require_known
from ctlib.recovery.recovered import Recovered
from ctlib.sets import RootMeanSquare
from ctlib.splitting import Sequential
from ctlib.substeps import Project, Replace, Witness
from ctlib.transformer import FeedForward, pre_norm_step

_LLAMA = "llama.modeling_llama"
(MODEL,) = parts(_LLAMA, "LlamaModel")
(WITH_HEAD,) = parts(_LLAMA, "LlamaForCausalLM")
PARTS = TORCH_PARTS | parts(
    _LLAMA,
    "LlamaForCausalLM LlamaModel LlamaDecoderLayer LlamaAttention LlamaMLP LlamaRMSNorm LlamaRotaryEmbedding",
)
#: Rotary positions whose angles depend on the length of the text.
CHANGING_ANGLES = {"dynamic", "longrope"}


def rms_norm(norm: nn.Module) -> RootMeanSquare:
    """RMSNorm as the projection on S₃.  It is computed in float32 throughout, as the network does."""
    return RootMeanSquare(norm.weight, norm.variance_epsilon, in_float32="state")


def time_step(layer: nn.Module, rotary: Rotary, path: str, n: int) -> Sequential:
    """Layer n as time step n."""
    a, f = layer.self_attn, layer.mlp
    attention = Attention(
        kernel(a.q_proj, "W^Q"),
        kernel(a.k_proj, "W^K"),
        kernel(a.v_proj, "W^V"),
        kernel(a.o_proj, "W^O"),
        a.config.num_attention_heads,
        scale=a.scaling,
        shared_heads=a.config.num_key_value_heads,
        causal=True,
        rotary=rotary,
    )
    network = FeedForward(
        kernel(f.up_proj, "W_1"),
        activation(f, "act_fn"),
        kernel(f.down_proj, "W_2"),
        gate=kernel(f.gate_proj, "W_g"),
    )
    shown = f"{path}layers.{n}"
    return pre_norm_step(
        attention,
        rms_norm(layer.input_layernorm),
        network.operator(),
        rms_norm(layer.post_attention_layernorm),
        witnesses=(Witness(f"{shown}.post_attention_layernorm", "in"), Witness(shown, "out")),
        label=n,
    )


def recover_llama(model: nn.Module, path: str = "") -> Recovered:
    """LlamaModel; the scheme stands for its `last_hidden_state`.  `path` is where it stands in a larger model."""
    require_known(model, PARTS)
    require_sdpa(model)
    kind = model.rotary_emb.rope_type
    told = f"{kind!r}: angles that depend on the length of the text are not known."
    require(kind not in CHANGING_ANGLES, model, "config.rope_parameters['rope_type']", told)
    require(getattr(model.config, "is_causal", True), model, "config.is_causal", "only the causal measure is known.")
    rotary = Rotary(lambda: model.rotary_emb.inv_freq, model.rotary_emb.attention_scaling)
    layers = model.layers[: model.config.num_hidden_layers]
    steps = [time_step(layer, rotary, path, n) for n, layer in enumerate(layers)]
    end = Sequential(Project(rms_norm(model.norm), witness=Witness(f"{path}norm", "out")), label="end")

    def read(
        input_ids: Int[Tensor, "batch nodes"] | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Int[Tensor, "#batch nodes"] | None = None,
        inputs_embeds: Float[Tensor, "batch nodes features"] | None = None,
    ) -> Field:
        f = embedded(model.embed_tokens, input_ids, inputs_embeds)
        if position_ids is None:
            position_ids = torch.arange(f.shape[1], device=f.device)[None]
        return Field(f, causal_grid(model, f, attention_mask, position_ids))

    return Recovered(model, Sequential(*steps, end), read, values, last_hidden_state(model))


def recover_with_head(model: nn.Module) -> Recovered:
    """LlamaForCausalLM; the scheme stands for its `logits`."""
    require_known(model, PARTS)
    head = Replace(kernel(model.lm_head, "U"), witness=Witness("lm_head", "out"))
    return with_head(model, recover_llama(model.model, "model."), Sequential(head, label="head"))
