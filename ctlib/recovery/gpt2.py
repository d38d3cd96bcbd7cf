"""`transformers.GPT2Model` and `GPT2LMHeadModel`, the language model of Radford et al.: pre-norm, causal, tanh-GELU."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ctlib.field import Field
from ctlib.operators import Attention, Kernel
from ctlib.recovery.huggingface import (
    TORCH_PARTS,
    causal_grid,
    embedded,
    last_hidden_state,
    parts,
    require_positions,
    require_sdpa,
    values,
    with_head,
)
from ctlib.recovery.parts import activation, kernel, layer_norm, require, require_known
from ctlib.recovery.recovered import Recovered
from ctlib.splitting import Sequential
from ctlib.substeps import Project, Replace, Witness
from ctlib.transformer import FeedForward, pre_norm_step

_GPT2 = "gpt2.modeling_gpt2"
(MODEL,) = parts(_GPT2, "GPT2Model")
(WITH_HEAD,) = parts(_GPT2, "GPT2LMHeadModel")
PARTS = (
    TORCH_PARTS
    | parts(_GPT2, "GPT2LMHeadModel GPT2Model GPT2Block GPT2Attention GPT2MLP")
    | {"transformers.pytorch_utils.Conv1D"}
)


class Transposed(Kernel):
    """A kernel that is stored transposed.

    It is transposed at each call: a view that was taken once would not follow when the network is cast or moved.
    """

    def __init__(
        self, stored: Float[Tensor, "features rows"], bias: Float[Tensor, " rows"] | None, symbol: str, rows: slice
    ):
        self.stored, self.bias, self.symbol, self.rows = stored, bias, symbol, rows

    @property
    def weight(self) -> Float[Tensor, "rows features"]:
        return self.stored.t()


def transposed(linear: nn.Module, symbol: str, rows: slice = slice(None)) -> Kernel:
    """A `Conv1D` as an integral over Ω_y; it stores W transposed."""
    return Transposed(linear.weight, linear.bias, symbol, rows)


def time_step(layer: nn.Module, path: str, n: int) -> Sequential:
    """Layer n as time step n."""
    a = layer.attn
    require(not a.is_cross_attention and not hasattr(layer, "crossattention"), layer, "crossattention", "is not known.")
    Q, K, V = (
        transposed(a.c_attn, f"W^{name}", slice(i * a.split_size, (i + 1) * a.split_size))
        for i, name in enumerate("QKV")
    )
    attention = Attention(Q, K, V, transposed(a.c_proj, "W^O"), a.num_heads, scale=a.scaling, causal=True)
    network = FeedForward(
        transposed(layer.mlp.c_fc, "W_1"), activation(layer.mlp, "act"), transposed(layer.mlp.c_proj, "W_2")
    )
    return pre_norm_step(
        attention,
        layer_norm(layer.ln_1),
        network.operator(),
        layer_norm(layer.ln_2),
        witnesses=(Witness(f"{path}h.{n}.ln_2", "in"), Witness(f"{path}h.{n}", "out")),
        label=n,
    )


def recover_gpt2(model: nn.Module, path: str = "") -> Recovered:
    """GPT2Model; the scheme stands for its `last_hidden_state`.  `path` is where it stands in a larger model."""
    require_known(model, PARTS)
    require_sdpa(model)
    config = model.config
    steps = [time_step(layer, path, n) for n, layer in enumerate(model.h)]
    end = Sequential(Project(layer_norm(model.ln_f), witness=Witness(f"{path}ln_f", "out")), label="end")

    def read(
        input_ids: Int[Tensor, "batch nodes"] | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch nodes"] | None = None,
        position_ids: Int[Tensor, "#batch nodes"] | None = None,
        inputs_embeds: Float[Tensor, "batch nodes features"] | None = None,
    ) -> Field:
        words = embedded(model.wte, input_ids, inputs_embeds)
        n = words.shape[1]
        if position_ids is None:
            require_positions(n, config.max_position_embeddings)
            position_ids = torch.arange(n, device=words.device)[None]
        f = words + model.wpe(position_ids)
        grid = causal_grid(model, words, attention_mask, position_ids)
        return Field(f if token_type_ids is None else f + model.wte(token_type_ids), grid)

    return Recovered(model, Sequential(*steps, end), read, values, last_hidden_state(model))


def recover_with_head(model: nn.Module) -> Recovered:
    """GPT2LMHeadModel; the scheme stands for its `logits`."""
    require_known(model, PARTS)
    head = Replace(kernel(model.lm_head, "U"), witness=Witness("lm_head", "out"))
    return with_head(model, recover_gpt2(model.transformer, "transformer."), Sequential(head, label="head"))
