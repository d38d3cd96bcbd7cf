"""Vision Transformers: `transformers.ViTModel`, `Dinov2Model` and, for videos, `VivitModel`.

Ω_x is the grid of patches, and the class token an atom beside it.  The layers are pre-norm; DINOv2 multiplies every
rate by a learned λ(y), LayerScale.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ctlib.convolutions import Adjoin, Convolution
from ctlib.field import Field, Grid
from ctlib.operators import Attention, Diagonal, Map
from ctlib.positions import Source
from ctlib.recovery.huggingface import TORCH_PARTS, last_hidden_state, parts, require_sdpa, values
from ctlib.recovery.parts import RecoveryError, activation, kernel, layer_norm, require_known
from ctlib.recovery.recovered import Recovered
from ctlib.splitting import Sequential
from ctlib.substeps import Explicit, Project, Replace, Witness
from ctlib.transformer import FeedForward, pre_norm_step

_VIT, _DINOV2, _VIVIT = "vit.modeling_vit", "dinov2.modeling_dinov2", "vivit.modeling_vivit"
(VIT,) = parts(_VIT, "ViTModel")
(DINOV2,) = parts(_DINOV2, "Dinov2Model")
(VIVIT,) = parts(_VIVIT, "VivitModel")
CONVOLUTIONS = {"torch.nn.modules.conv.Conv2d", "torch.nn.modules.conv.Conv3d"}
VIT_PARTS = (
    TORCH_PARTS
    | CONVOLUTIONS
    | parts(_VIT, "ViTModel ViTEmbeddings ViTPatchEmbeddings ViTLayer ViTAttention ViTMLP ViTPooler")
)
DINOV2_PARTS = (
    TORCH_PARTS
    | CONVOLUTIONS
    | parts(
        _DINOV2,
        "Dinov2Model Dinov2Embeddings Dinov2PatchEmbeddings Dinov2Encoder Dinov2Layer Dinov2Attention Dinov2MLP "
        "Dinov2SwiGLUFFN Dinov2LayerScale Dinov2DropPath",
    )
)
VIVIT_PARTS = (
    TORCH_PARTS
    | CONVOLUTIONS
    | parts(_VIVIT, "VivitModel VivitEmbeddings VivitTubeletEmbeddings VivitLayer VivitAttention VivitMLP VivitPooler")
)


def attention(a: nn.Module) -> Attention:
    """The attention of all three models."""
    return Attention(
        kernel(a.q_proj, "W^Q"),
        kernel(a.k_proj, "W^K"),
        kernel(a.v_proj, "W^V"),
        kernel(a.o_proj, "W^O"),
        a.num_attention_heads,
        scale=a.scaling,
    )


def feed_forward(mlp: nn.Module) -> Map:
    """The feed-forward network, plain or gated, as one operator."""
    if hasattr(mlp, "gate_proj"):
        blocks = kernel(mlp.up_proj, "W_1"), activation(mlp, "act_fn"), kernel(mlp.down_proj, "W_2")
        return FeedForward(*blocks, gate=kernel(mlp.gate_proj, "W_g")).operator()
    return FeedForward(kernel(mlp.fc1, "W_1"), activation(mlp, "activation_fn"), kernel(mlp.fc2, "W_2")).operator()


def time_step(layer: nn.Module, n: int) -> Sequential:
    """Layer n of ViT or ViViT as time step n."""
    return pre_norm_step(
        attention(layer.attention),
        layer_norm(layer.layernorm_before),
        feed_forward(layer.mlp),
        layer_norm(layer.layernorm_after),
        witnesses=(Witness(f"layers.{n}.layernorm_after", "in"), Witness(f"layers.{n}", "out")),
        label=n,
    )


def scaled_time_step(layer: nn.Module, n: int) -> Sequential:
    """Layer n of DINOv2 as time step n."""
    return pre_norm_step(
        Diagonal(layer.layer_scale1.lambda1, r"\lambda_1") @ attention(layer.attention),
        layer_norm(layer.norm1),
        Diagonal(layer.layer_scale2.lambda1, r"\lambda_2") @ feed_forward(layer.mlp),
        layer_norm(layer.norm2),
        witnesses=(Witness(f"encoder.layer.{n}.norm2", "in"), Witness(f"encoder.layer.{n}", "out")),
        label=n,
    )


def start(embeddings: nn.Module, positions: Source) -> Sequential:
    """From the field of pixels to that of patches: a convolution with stride, the atom, the positions."""
    return Sequential(
        Replace(Convolution(embeddings.patch_embeddings.projection)),
        Replace(Adjoin(embeddings.cls_token)),
        Explicit(positions, witness=Witness("embeddings", "out")),
        label="start",
    )


def _recover(model: nn.Module, positions: Source, steps: list[Sequential], video: bool = False) -> Recovered:
    require_sdpa(model)
    scheme = Sequential(
        start(model.embeddings, positions),
        *steps,
        Sequential(Project(layer_norm(model.layernorm), witness=Witness("layernorm", "out")), label="end"),
    )
    projection = model.embeddings.patch_embeddings.projection

    def read(pixel_values: Float[Tensor, "batch ..."]) -> Field:
        pixels = pixel_values.transpose(1, 2) if video else pixel_values
        return field_of_pixels(pixels, projection)

    return Recovered(model, scheme, read, values, last_hidden_state(model))


def field_of_pixels(pixels: Float[Tensor, "batch features *shape"], layer: nn.Module) -> Field:
    """The field of an image or a video: Ω_x are its pixels, Ω_y its colours.  `layer` is the convolution to come."""
    axes, features = len(layer.kernel_size), layer.in_channels
    if pixels.dim() != 2 + axes or pixels.shape[1] != features:
        told = "(batch, frames, colours, rows, columns)" if axes == 3 else "(batch, colours, rows, columns)"
        raise RecoveryError(f"pixel_values: expected {told} with {features} colours.")
    small = [n for n, k, p in zip(pixels.shape[2:], layer.kernel_size, layer.padding) if n + 2 * p < k]
    if small:
        raise RecoveryError(f"pixel_values: {small[0]} pixels are less than one patch of {layer.kernel_size[-1]}.")
    pixels = pixels.to(layer.weight.dtype)
    return Field(pixels.flatten(2).transpose(1, 2), Grid(tuple(pixels.shape[2:])))


def learned_positions(embeddings: nn.Module) -> Source:
    """p(x, y), known on one grid of patches only."""

    def p(grid: Grid) -> Tensor:
        known = embeddings.position_embeddings
        if len(grid) != known.shape[1]:
            raise RecoveryError(
                f"pixel_values: {len(grid) - 1} patches, but the model knows {known.shape[1] - 1} positions."
            )
        return known

    return Source(p)


def interpolated_positions(embeddings: nn.Module) -> Source:
    """p(x, y) on any grid of patches, by bicubic interpolation from the one that it was learned on."""

    def p(grid: Grid) -> Tensor:
        known = embeddings.position_embeddings
        rows, columns = grid.shape
        side = int((known.shape[1] - 1) ** 0.5)
        if rows == columns == side:
            return known
        patches = known[:, 1:].reshape(1, side, side, -1).permute(0, 3, 1, 2)
        patches = F.interpolate(patches.to(torch.float32), grid.shape, mode="bicubic", align_corners=False)
        return torch.cat((known[:, :1], patches.to(known.dtype).permute(0, 2, 3, 1).flatten(1, 2)), dim=1)

    return Source(p)


def recover_vit(model: nn.Module) -> Recovered:
    """ViTModel; the scheme stands for its `last_hidden_state`."""
    require_known(model, VIT_PARTS)
    steps = [time_step(layer, n) for n, layer in enumerate(model.layers)]
    return _recover(model, learned_positions(model.embeddings), steps)


def recover_dinov2(model: nn.Module) -> Recovered:
    """Dinov2Model; the scheme stands for its `last_hidden_state`."""
    require_known(model, DINOV2_PARTS)
    steps = [scaled_time_step(layer, n) for n, layer in enumerate(model.encoder.layer)]
    return _recover(model, interpolated_positions(model.embeddings), steps)


def recover_vivit(model: nn.Module) -> Recovered:
    """VivitModel: Ω_x is a grid in time and space, and attention integrates over all of it (joint attention)."""
    require_known(model, VIVIT_PARTS)
    steps = [time_step(layer, n) for n, layer in enumerate(model.layers)]
    return _recover(model, learned_positions(model.embeddings), steps, video=True)
