"""`torch.nn.TransformerEncoderLayer` and `torch.nn.TransformerEncoder`.

The reference is torch's general ("slow") path: the composition of its parts.  torch's fused fast path computes the same
with other roundings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ctlib.field import Field, Grid
from ctlib.operators import Attention, Kernel, Map
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
from ctlib.transformer import FeedForward, PostNormWitnesses, post_norm_step, pre_norm_step

Mask = Bool[Tensor, "..."] | Float[Tensor, "..."]

LAYER = "torch.nn.modules.transformer.TransformerEncoderLayer"
STACK = "torch.nn.modules.transformer.TransformerEncoder"
SOURCE = ("src", "src_mask", "src_key_padding_mask")
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
    """Attention in torch's order of evaluation: transforms of one field in one product, tokens before batches.

    Q, K and V are row slices of one packed weight.
    """

    def _transforms(self, u: Field, rows: slice, count: int) -> list[Tensor]:
        """The `count` transforms of u that lie in these rows of the packed weight, each (batch, heads, N, d_k)."""
        W, b = self.Q.weight[rows], None if self.Q.bias is None else self.Q.bias[rows]
        packed = F.linear(u.values.transpose(0, 1), W, b)  # (N, batch, count · features)
        packed = packed.unflatten(-1, (count, -1)).movedim(-2, 0)
        packed = packed.contiguous()  # sums may round otherwise at another alignment
        return [t.unflatten(-1, (self.heads, -1)).permute(1, 2, 0, 3) for t in packed]

    def __call__(self, u: Field) -> Field:
        m = self.read(u)
        if m is u:
            q, k, v = self._transforms(u, slice(None), 3)
        else:
            (q,), (k, v) = self._transforms(u, self.Q.rows, 1), self._transforms(m, slice(self.K.rows.start, None), 2)
        z = F.scaled_dot_product_attention(
            q, k, v, m.grid.log_weight, is_causal=m.grid.causal
        )  # (batch, heads, N, d_k)
        rate = self.O(Field(z.permute(2, 0, 1, 3).flatten(2)))  # each row alone, tokens before batches here as well
        return u.like(rate.values.transpose(0, 1))


def attention(a: nn.MultiheadAttention, reads: Map | None = None) -> Attention:
    """Self-attention, or attention to the field that is read; Q, K, V are row slices of torch's one packed weight."""
    require(
        a.bias_k is None and not a.add_zero_attn, a, "bias_k, add_zero_attn", "an extra node in every sum is not known."
    )
    require(a._qkv_same_embed_dim, a, "kdim, vdim", "keys and values must have the width of the state.")
    d = a.embed_dim
    Q, K, V = (
        Kernel(a.in_proj_weight, a.in_proj_bias, f"W^{name}", rows=slice(i * d, (i + 1) * d))
        for i, name in enumerate("QKV")
    )
    return PackedAttention(Q, K, V, kernel(a.out_proj, "W^O"), a.num_heads, reads=reads)


def feed_forward(layer: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> FeedForward:
    """The feed-forward network of a layer."""
    return FeedForward(kernel(layer.linear1, "W_1"), activation(layer, "activation"), kernel(layer.linear2, "W_2"))


def shown_in(path: str) -> Callable[[str, str], Witness]:
    """Witnesses by the names that modules have within the part at `path`."""
    return lambda module, side: Witness(".".join(filter(None, (path, module))), side)


def post_norm_witnesses(shown: Callable[[str, str], Witness], first: str, second: str) -> PostNormWitnesses:
    """Where a layer shows the six states of a post-norm step, by the names of the two normalisations."""
    modules = (first, first, "linear2", "linear2", second, second)
    return tuple(shown(module, side) for module, side in zip(modules, ("in", "out") * 3))


def time_step(layer: nn.TransformerEncoderLayer, path: str = "", label: int | None = None) -> Sequential:
    """One encoder layer as one time step; `path` is where the layer stands in the network that shows its states."""

    shown = shown_in(path)
    own, network = attention(layer.self_attn), feed_forward(layer)
    first, second = layer_norm(layer.norm1), layer_norm(layer.norm2)
    if layer.norm_first:
        witnesses = shown("norm2", "in"), shown("", "out")
        return pre_norm_step(own, first, network.operator(), second, witnesses, label)
    return post_norm_step(own, first, network, second, post_norm_witnesses(shown, "norm1", "norm2"), label)


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
        return field(attn, SOURCE, src, (src_mask, src_key_padding_mask), is_causal)

    def write(u: Field, src: Tensor, *_, **__) -> Tensor:
        return as_given(u, src)

    return Recovered(layer, time_step(layer), read, write, layer)


def stack_steps(stack: nn.TransformerEncoder | nn.TransformerDecoder, step: Callable, path: str = "") -> list[Map]:
    """A time step for each layer, and the final normalisation if there is one; `path` is where the stack stands."""
    require(len(stack.layers) > 0, stack, "layers", "there are none, and torch itself can't run such a stack.")
    first = stack.layers[0].self_attn
    for layer in stack.layers:
        same = layer.self_attn.batch_first == first.batch_first
        require(same, layer.self_attn, "batch_first", "the layers of a stack must agree on it.")
    steps = [step(layer, f"{path}layers.{n}", label=n) for n, layer in enumerate(stack.layers)]
    if stack.norm is not None:
        steps.append(Sequential(Project(layer_norm(stack.norm), witness=Witness(f"{path}norm", "out")), label="end"))
    return steps


def recover_stack(stack: nn.TransformerEncoder) -> Recovered:
    """A stack of encoder layers, one time step each, and the final normalisation if there is one."""
    require_known(stack, PARTS | {STACK})
    steps = stack_steps(stack, time_step)
    attn = stack.layers[0].self_attn

    def read(
        src: Float[Tensor, "..."],
        mask: Mask | None = None,
        src_key_padding_mask: Mask | None = None,
        is_causal: bool | None = None,
    ) -> Field:
        names = ("src", "mask", "src_key_padding_mask")
        return field(attn, names, src, (mask, src_key_padding_mask), detect_causal(mask, is_causal))

    def write(u: Field, src: Tensor, *_, **__) -> Tensor:
        return as_given(u, src)

    return Recovered(stack, Sequential(*steps), read, write, stack)


def detect_causal(mask: Mask | None, told: bool | None) -> bool:
    """Whether the mask of a stack is the causal one, as torch decides when it isn't told."""
    if told is not None or mask is None:
        return bool(told)
    if mask.dim() != 2 or mask.shape[0] != mask.shape[1]:
        return False
    causal = torch.full_like(mask, -torch.inf, dtype=mask.dtype if mask.is_floating_point() else torch.float).triu(1)
    return bool((mask == causal.to(mask.dtype)).all())


def field(
    attn: nn.MultiheadAttention,
    names: tuple[str, str, str],
    x: Tensor,
    masks: tuple[Mask | None, Mask | None],
    is_causal: bool,
    given: Field | None = None,
) -> Field:
    """The field that an argument of torch's layers and its two masks describe; `names` are what the call names them."""
    u, tokens_first = batch_first(names[0], x, attn)
    grid = Measure(attn.num_heads, u, u, x.dim() == 3).grid(names[1:], *masks, is_causal)
    return Field(u, grid, tokens_first, given)


def batch_first(
    name: str, x: Tensor, attn: nn.MultiheadAttention
) -> tuple[Float[Tensor, "batch nodes features"], bool]:
    """An argument of torch's layers, batch or none, as the values of a field; and whether tokens came first in it."""
    if x.dim() not in (2, 3) or x.shape[-1] != attn.embed_dim:
        raise RecoveryError(f"{name}: expected (…, {attn.embed_dim}) with a batch or without, got {tuple(x.shape)}.")
    tokens_first = x.dim() == 3 and not attn.batch_first
    return (x.transpose(0, 1) if tokens_first else x if x.dim() == 3 else x.unsqueeze(0)), tokens_first


def as_given(u: Field, x: Tensor) -> Tensor:
    """The values of a field in the layout of the argument x that they came from."""
    return u.values.squeeze(0) if x.dim() == 2 else u.values.transpose(0, 1) if u.tokens_first else u.values


class Measure(NamedTuple):
    """torch's masks as the measure over the nodes of the field that attention reads.

    Attributes:
        heads: the number of heads.
        u: the values of the field that reads.
        m: the values of the field that is read.
        batched: whether the network was given a batch.
    """

    heads: int
    u: Float[Tensor, "batch nodes features"]
    m: Float[Tensor, "batch read features"]
    batched: bool

    def grid(self, names: tuple[str, str], mask: Mask | None, padding: Mask | None, is_causal: bool) -> Grid:
        """The grid of the field that is read; `names` are those of the two masks in the network's call."""
        batch, n, _ = self.u.shape
        read = self.m.shape[1]
        if is_causal and mask is None:
            raise RecoveryError("is_causal=True is a hint about a mask: give the mask as well.")
        log_weight = None
        if mask is not None:
            shapes = [(n, read), (batch * self.heads, n, read)]
            log_weight = self._logarithm(names[0], mask, shapes)
            log_weight = log_weight.view(-1, self.heads if log_weight.dim() == 3 else 1, n, read)
        if padding is not None:
            shape = (batch, read) if self.batched else (read,)
            excluded = self._logarithm(names[1], padding, [shape]).view(batch, 1, 1, read)
            log_weight = excluded if log_weight is None else log_weight + excluded
        elif is_causal:
            return Grid((read,), causal=True)
        return Grid((read,), log_weight)

    def _logarithm(self, name: str, mask: Mask, shapes: list[tuple[int, ...]]) -> Float[Tensor, "..."]:
        """log w of a mask: a number is the logarithm itself; True takes the node out, log 0."""
        if tuple(mask.shape) not in shapes:
            raise RecoveryError(f"{name}: expected the shape {' or '.join(map(str, shapes))}, got {tuple(mask.shape)}.")
        if mask.dtype == torch.bool:
            return torch.zeros(mask.shape, dtype=self.u.dtype, device=mask.device).masked_fill_(mask, -torch.inf)
        if mask.dtype != self.u.dtype:
            raise RecoveryError(f"{name}: expected booleans or {self.u.dtype} as the state has, got {mask.dtype}.")
        return mask
