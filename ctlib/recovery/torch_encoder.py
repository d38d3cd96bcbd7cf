"""`torch.nn.TransformerEncoderLayer` and `torch.nn.TransformerEncoder`.

The reference is torch's general ("slow") path: the composition of its parts.  torch's fused fast path computes the same
with other roundings.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ctlib.field import Field, Grid
from ctlib.operators import Attention, Kernel
from ctlib.recovery.parts import (
    ACTIVATIONS,
    RecoveryError,
    activation,
    kernel,
    layer_norm,
    require,
    require_known,
)
from ctlib.recovery.recovered import Recovered
from ctlib.splitting import Sequential
from ctlib.substeps import Project, Witness
from ctlib.transformer import FeedForward, post_norm_step, pre_norm_step

Mask = Bool[Tensor, "..."] | Float[Tensor, "..."]

LAYER = "torch.nn.modules.transformer.TransformerEncoderLayer"
STACK = "torch.nn.modules.transformer.TransformerEncoder"
PARTS = ACTIVATIONS | {
    "torch.nn.modules.activation.MultiheadAttention",
    "torch.nn.modules.container.ModuleList",
    "torch.nn.modules.dropout.Dropout",
    "torch.nn.modules.linear.Linear",
    "torch.nn.modules.linear.NonDynamicallyQuantizableLinear",
    "torch.nn.modules.normalization.LayerNorm",
    LAYER,
}


class PackedAttention(Attention):
    """Attention in torch's order of evaluation: Q, K and V in one product, tokens before batches."""

    def __call__(self, u: Field) -> Field:
        qkv = F.linear(u.values.transpose(0, 1), self.Q.weight, self.Q.bias)  # (N, batch, 3 · features)
        qkv = qkv.unflatten(-1, (3, -1)).movedim(-2, 0).contiguous()  # sums may round otherwise at another alignment
        q, k, v = (t.unflatten(-1, (self.heads, -1)).permute(1, 2, 0, 3) for t in qkv)
        z = F.scaled_dot_product_attention(
            q, k, v, u.grid.log_weight, is_causal=u.grid.causal
        )  # (batch, heads, N, d_k)
        rate = self.O(Field(z.permute(2, 0, 1, 3).flatten(2)))  # each row alone, tokens before batches here as well
        return u.like(rate.values.transpose(0, 1))


def attention(a: nn.MultiheadAttention) -> Attention:
    """Self-attention; Q, K and V are row slices of torch's one packed weight."""
    require(
        a.bias_k is None and not a.add_zero_attn, a, "bias_k, add_zero_attn", "an extra node in every sum is not known."
    )
    require(a._qkv_same_embed_dim, a, "kdim, vdim", "self-attention has keys and values of its own width.")
    d = a.embed_dim
    Q, K, V = (
        Kernel(a.in_proj_weight, a.in_proj_bias, f"W^{name}", rows=slice(i * d, (i + 1) * d))
        for i, name in enumerate("QKV")
    )
    return PackedAttention(Q, K, V, kernel(a.out_proj, "W^O"), a.num_heads)


def time_step(layer: nn.TransformerEncoderLayer, path: str = "", label: int | None = None) -> Sequential:
    """One encoder layer as one time step; `path` is where the layer stands in the network that shows its states."""

    def shown(module: str, side: str) -> Witness:
        return Witness(".".join(filter(None, (path, module))), side)

    blocks = (
        attention(layer.self_attn),
        layer_norm(layer.norm1),
        FeedForward(kernel(layer.linear1, "W_1"), activation(layer, "activation"), kernel(layer.linear2, "W_2")),
        layer_norm(layer.norm2),
    )
    if layer.norm_first:
        return pre_norm_step(*blocks, witnesses=(shown("norm2", "in"), shown("", "out")), label=label)
    witnesses = (
        shown("norm1", "in"),
        shown("norm1", "out"),
        shown("linear2", "in"),
        shown("linear2", "out"),
        shown("norm2", "in"),
        shown("norm2", "out"),
    )
    return post_norm_step(*blocks, witnesses=witnesses, label=label)


def recover_layer(layer: nn.TransformerEncoderLayer) -> Recovered:
    """One encoder layer: post-norm or pre-norm, any width, any number of heads, with or without biases."""
    require_known(layer, PARTS)
    attn = layer.self_attn

    def read(
        src: Float[Tensor, "..."],
        src_mask: Mask | None = None,
        src_key_padding_mask: Mask | None = None,
        is_causal: bool = False,
    ) -> Field:
        return _field(attn, src, src_mask, src_key_padding_mask, is_causal)

    return Recovered(layer, time_step(layer), read, _write(attn), layer)


def recover_stack(stack: nn.TransformerEncoder) -> Recovered:
    """A stack of encoder layers, one time step each, and the final normalisation if there is one."""
    require_known(stack, PARTS | {STACK})
    require(len(stack.layers) > 0, stack, "layers", "there are none, and torch itself can't run such a stack.")
    attn = stack.layers[0].self_attn
    for layer in stack.layers:
        same = layer.self_attn.batch_first == attn.batch_first
        require(same, layer.self_attn, "batch_first", "the layers of a stack must agree on it.")
    steps = [time_step(layer, f"layers.{n}", label=n) for n, layer in enumerate(stack.layers)]
    if stack.norm is not None:
        steps.append(Sequential(Project(layer_norm(stack.norm), witness=Witness("norm", "out")), label="end"))

    def read(
        src: Float[Tensor, "..."],
        mask: Mask | None = None,
        src_key_padding_mask: Mask | None = None,
        is_causal: bool | None = None,
    ) -> Field:
        if is_causal is None:
            is_causal = mask is not None and _is_causal(mask)
        return _field(attn, src, mask, src_key_padding_mask, is_causal)

    return Recovered(stack, Sequential(*steps), read, _write(attn), stack)


def _is_causal(mask: Mask) -> bool:
    """Whether a mask is the causal one, as torch decides when it isn't told."""
    if mask.dim() != 2 or mask.shape[0] != mask.shape[1]:
        return False
    causal = torch.full_like(mask, -torch.inf, dtype=mask.dtype if mask.is_floating_point() else torch.float).triu(1)
    return bool((mask == causal.to(mask.dtype)).all())


def _field(attn: nn.MultiheadAttention, src: Tensor, mask: Mask | None, padding: Mask | None, is_causal: bool) -> Field:
    """The field that the layer's arguments describe, with the masks as the measure of its grid."""
    if src.dim() not in (2, 3) or src.shape[-1] != attn.embed_dim:
        raise RecoveryError(f"src: expected (…, {attn.embed_dim}) with a batch or without, got {tuple(src.shape)}.")
    batched = src.dim() == 3
    tokens_first = batched and not attn.batch_first
    u = src.transpose(0, 1) if tokens_first else src if batched else src.unsqueeze(0)
    batch, n, _ = u.shape
    if is_causal and mask is None:
        raise RecoveryError("is_causal=True is a hint about a mask: give the mask as well.")
    log_weight = None
    if mask is not None:
        shapes = [(n, n), (batch * attn.num_heads, n, n)]
        log_weight = _logarithm("mask", mask, shapes, u.dtype)
        log_weight = log_weight.view(-1, attn.num_heads if log_weight.dim() == 3 else 1, n, n)
    if padding is not None:
        shape = (batch, n) if batched else (n,)
        excluded = _logarithm("src_key_padding_mask", padding, [shape], u.dtype).view(batch, 1, 1, n)
        log_weight = excluded if log_weight is None else log_weight + excluded
    elif is_causal:
        return Field(u, Grid((n,), causal=True), tokens_first)
    return Field(u, Grid((n,), log_weight), tokens_first)


def _logarithm(name: str, mask: Mask, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> Float[Tensor, "..."]:
    """log w of a mask: a number is the logarithm itself; True takes the node out, log 0."""
    if tuple(mask.shape) not in shapes:
        raise RecoveryError(f"{name}: expected the shape {' or '.join(map(str, shapes))}, got {tuple(mask.shape)}.")
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(mask, -torch.inf)
    if mask.dtype != dtype:
        raise RecoveryError(f"{name}: expected booleans or {dtype} as src has, got {mask.dtype}.")
    return mask


def _write(attn: nn.MultiheadAttention):
    def write(u: Field, src: Tensor, *_, **__) -> Tensor:
        if src.dim() == 2:
            return u.values.squeeze(0)
        return u.values if attn.batch_first else u.values.transpose(0, 1)

    return write
