"""`transformers.TimesformerModel`, the video Transformer of Bertasius et al.

Ω_x is a grid in space and time, and the class token an atom beside it.  Divided attention is one more splitting: the
integral over time at each place acts first, then the integral over space at each time.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ctlib.convolutions import Adjoin, Convolution, Fibres
from ctlib.field import Field, Grid
from ctlib.operators import Attention, Kernel, Map
from ctlib.positions import Source
from ctlib.recovery.huggingface import TORCH_PARTS, last_hidden_state, parts, values
from ctlib.recovery.parts import RecoveryError, activation, kernel, layer_norm, require, require_known
from ctlib.recovery.recovered import Recovered
from ctlib.recovery.vit import CONVOLUTIONS, field_of_pixels
from ctlib.splitting import Sequential
from ctlib.substeps import Explicit, Project, Replace, Witness
from ctlib.transformer import FeedForward, pre_norm_step

_TIMESFORMER = "timesformer.modeling_timesformer"
(MODEL,) = parts(_TIMESFORMER, "TimesformerModel")
PARTS = (
    TORCH_PARTS
    | CONVOLUTIONS
    | parts(
        _TIMESFORMER,
        "TimesformerModel TimesformerEmbeddings TimesformerPatchEmbeddings TimesformerEncoder TimesformerLayer "
        "TimeSformerAttention TimesformerSelfAttention TimesformerSelfOutput TimesformerIntermediate "
        "TimesformerOutput TimesformerDropPath",
    )
)
SPACE, TIME = (0, 1), (2,)


class InSpace(Map):
    """A convolution of every picture of a video by itself: Ω_x = rows × columns × times, from pixels to patches.

    Arguments:
        convolution: the torch layer.
    """

    def __init__(self, convolution: nn.Module):
        self.convolution = Convolution(convolution)

    def __call__(self, u: Field) -> Field:
        batch, _, features = u.values.shape
        *space, times = u.grid.shape
        v = u.values.view(batch, *space, times, features).movedim(3, 1).reshape(batch * times, -1, features)
        z = self.convolution(Field(v, Grid(tuple(space))))
        patches = z.grid.shape
        w = z.values.unflatten(0, (batch, times)).movedim(1, 2)  # (batch, patches, times, features)
        return u.like(w.flatten(1, 2), Grid((*patches, times)))

    def __str__(self) -> str:
        return str(self.convolution)

    def tex(self, u: str) -> str:
        return self.convolution.tex(u)


def attention(part: nn.Module) -> Attention:
    """The attention of one block; Q, K and V are row slices of one packed weight."""
    a, d = part.attention, part.output.dense.in_features
    Q, K, V = (Kernel(a.qkv.weight, a.qkv.bias, f"W^{name}", slice(i * d, (i + 1) * d)) for i, name in enumerate("QKV"))
    return Attention(Q, K, V, kernel(part.output.dense, "W^O"), a.num_heads, scale=a.scale)


def time_step(layer: nn.Module, path: str, n: int) -> Sequential:
    """Layer n as time step n: joint attention in two substeps, divided attention in three."""
    network = FeedForward(
        kernel(layer.intermediate.dense, "W_1"),
        activation(layer.intermediate, "intermediate_act_fn"),
        kernel(layer.output.dense, "W_2"),
    ).operator()
    first, second = layer_norm(layer.layernorm_before), layer_norm(layer.layernorm_after)
    witnesses = Witness(f"{path}.layernorm_after", "in"), Witness(path, "out")
    if layer.attention_type != "divided_space_time":
        return pre_norm_step(attention(layer.attention), first, network, second, witnesses, n)
    over_time = kernel(layer.temporal_dense, "W^T") @ attention(layer.temporal_attention)
    over_space = attention(layer.attention) @ first
    return Sequential(
        Explicit(Fibres(over_time @ layer_norm(layer.temporal_layernorm), TIME, with_atoms=False)),
        Explicit(Fibres(over_space, SPACE, with_atoms=True), witness=witnesses[0]),
        Explicit(network @ second, witness=witnesses[1]),
        label=n,
    )


def recover_timesformer(model: nn.Module) -> Recovered:
    """TimesformerModel with joint or divided attention; the scheme stands for its `last_hidden_state`."""
    require_known(model, PARTS)
    kind = model.config.attention_type
    require(kind != "space_only", model, "config.attention_type", "'space_only' takes every picture for a text alone.")
    embeddings, projection = model.embeddings, model.embeddings.patch_embeddings.projection

    def positions(grid: Grid) -> Tensor:
        rows, columns, times = grid.shape
        in_space, in_time = embeddings.position_embeddings, embeddings.time_embeddings
        if rows * columns + 1 != in_space.shape[1]:
            side = int((in_space.shape[1] - 1) ** 0.5)
            known = in_space[:, 1:].transpose(1, 2).unflatten(2, (side, side))
            patches = F.interpolate(known, (rows, columns), mode="nearest").flatten(2).transpose(1, 2)
            in_space = torch.cat((in_space[:, :1], patches), dim=1)
        if times != in_time.shape[1]:
            in_time = F.interpolate(in_time.transpose(1, 2), times, mode="nearest").transpose(1, 2)
        p = in_space[:, 1:, None] + in_time[:, None]  # (1, patches, times, features)
        return torch.cat((in_space[:, :1], p.flatten(1, 2)), dim=1)

    start = Sequential(
        Replace(InSpace(projection)),
        Replace(Adjoin(embeddings.cls_token)),
        Explicit(Source(positions), witness=Witness("embeddings", "out")),
        label="start",
    )
    steps = [time_step(layer, f"encoder.layer.{n}", n) for n, layer in enumerate(model.encoder.layer)]
    end = [] if model.layernorm is None else [Project(layer_norm(model.layernorm), witness=Witness("layernorm", "out"))]

    def read(pixel_values: Float[Tensor, "batch times colours rows columns"]) -> Field:
        if pixel_values.dim() != 5:
            raise RecoveryError("pixel_values: expected (batch, frames, colours, rows, columns).")
        batch, times = pixel_values.shape[:2]
        if kind == "divided_space_time" and times != model.config.num_frames:
            raise RecoveryError(
                f"pixel_values: {times} frames, but the model's layers count {model.config.num_frames}."
            )
        u = field_of_pixels(pixel_values.flatten(0, 1), projection)
        space = u.grid.shape
        v = u.values.unflatten(0, (batch, times)).movedim(1, 2).flatten(1, 2)
        return Field(v, Grid((*space, times)))

    scheme = Sequential(start, *steps, Sequential(*end, label="end"))
    # TimeSformer writes its softmax and its products out.
    return Recovered(model, scheme, read, values, last_hidden_state(model), same_primitives=False)
