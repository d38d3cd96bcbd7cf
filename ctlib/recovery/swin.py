"""`transformers.SwinModel`, the windowed Transformer of Liu et al.: attention whose measure is restricted to a cell of
Ω_x.

Every other layer moves the cells by half their size, so that what was apart comes together.  Between stages, four nodes
become one.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from ctlib.convolutions import Convolution, Gather
from ctlib.field import Field, Grid
from ctlib.operators import Attention
from ctlib.positions import Cells, Relative, Source
from ctlib.recovery.huggingface import TORCH_PARTS, last_hidden_state, parts, require_sdpa, values
from ctlib.recovery.parts import RecoveryError, kernel, layer_norm, require_known
from ctlib.recovery.recovered import Recovered
from ctlib.recovery.vit import CONVOLUTIONS, feed_forward, field_of_pixels
from ctlib.splitting import Sequential
from ctlib.substeps import Explicit, Project, Replace, Witness
from ctlib.transformer import pre_norm_step

_SWIN = "swin.modeling_swin"
(MODEL,) = parts(_SWIN, "SwinModel")
PARTS = (
    TORCH_PARTS
    | CONVOLUTIONS
    | {"torch.nn.modules.pooling.AdaptiveAvgPool1d"}
    | parts(
        _SWIN,
        "SwinModel SwinEmbeddings SwinPatchEmbeddings SwinEncoder SwinStage SwinLayer SwinAttention "
        "SwinRelativePositionBias SwinMLP SwinPatchMerging SwinDropPath",
    )
)


def time_step(layer: nn.Module, path: str, n: int) -> Sequential:
    """Layer n of a stage as its time step n."""
    a = layer.attention
    bias = a.relative_position_bias
    side = bias.window_size[0] * bias.window_size[1]
    offset = Relative(bias.relative_position_bias_table, lambda x, read: bias.relative_position_index.view(side, side))
    attention = Attention(
        kernel(a.q_proj, "W^Q"),
        kernel(a.k_proj, "W^K"),
        kernel(a.v_proj, "W^V"),
        kernel(a.o_proj, "W^O"),
        a.num_attention_heads,
        scale=a.scaling,
        offset=offset,
    )
    return pre_norm_step(
        Cells(attention, layer.window_size, layer.shift_size),
        layer_norm(layer.layernorm_before),
        feed_forward(layer.mlp),
        layer_norm(layer.layernorm_after),
        witnesses=(Witness(f"{path}.layernorm_after", "in"), Witness(path, "out")),
        label=n,
    )


def recover_swin(model: nn.Module) -> Recovered:
    """SwinModel; the scheme stands for its `last_hidden_state`."""
    require_known(model, PARTS)
    require_sdpa(model)
    embeddings = model.embeddings
    projection = embeddings.patch_embeddings.projection
    start = [
        Replace(Convolution(projection)),
        Project(layer_norm(embeddings.norm), witness=Witness("embeddings.norm", "out")),
    ]
    if embeddings.position_embeddings is not None:
        start.append(
            Explicit(Source(lambda grid: embeddings.position_embeddings), witness=Witness("embeddings", "out"))
        )
    stages = []
    for s, stage in enumerate(model.encoder.layers):
        path = f"encoder.layers.{s}"
        steps = [time_step(layer, f"{path}.blocks.{n}", n) for n, layer in enumerate(stage.blocks)]
        if stage.downsample is not None:
            steps += [
                Replace(Gather()),
                Project(layer_norm(stage.downsample.norm), witness=Witness(f"{path}.downsample.norm", "out")),
                Replace(kernel(stage.downsample.reduction, "W"), witness=Witness(f"{path}.downsample", "out")),
            ]
        stages.append(Sequential(*steps, label=f"stage {s}"))
    end = Sequential(Project(layer_norm(model.layernorm), witness=Witness("layernorm", "out")), label="end")

    def read(pixel_values: Float[Tensor, "batch colours rows columns"]) -> Field:
        rows, columns = projection.kernel_size
        if pixel_values.dim() == 4:
            down, right = -pixel_values.shape[2] % rows, -pixel_values.shape[3] % columns
            pixel_values = nn.functional.pad(pixel_values, (0, right, 0, down))
        u = field_of_pixels(pixel_values, projection)
        smallest = [-(-n // (p * 2 ** (len(stages) - 1))) for n, p in zip(u.grid.shape, (rows, columns))]
        window = model.config.window_size
        if min(smallest) < window:
            raise RecoveryError(
                f"pixel_values: {smallest[0]}×{smallest[1]} patches in the last stage, less than a window of {window}."
            )
        return Field(u.values, Grid(u.grid.shape))

    scheme = Sequential(Sequential(*start, label="start"), *stages, end)
    return Recovered(model, scheme, read, values, last_hidden_state(model))
