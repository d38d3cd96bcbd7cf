"""Networks of convolutions, with or without attention: `transformers.ResNetModel`, `CvtModel`,
`CvtForImageClassification`.

ResNet is the paper's scheme with a convolution in the place of attention: u ← P_{S₂}(u + A[u]).  CvT has both: Q, K and
V are convolutions, on three grids of which each is coarser than the one before.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from ctlib.convolutions import Adjoin, Convolution, Restrict, Standardise, Supremum, image
from ctlib.field import Field
from ctlib.operators import Attention, Map
from ctlib.recovery.huggingface import TORCH_PARTS, last_hidden_state, parts
from ctlib.recovery.parts import activation, kernel, layer_norm, require, require_known
from ctlib.recovery.recovered import Recovered
from ctlib.recovery.vit import CONVOLUTIONS, field_of_pixels
from ctlib.sets import Set
from ctlib.splitting import Parallel, Sequential
from ctlib.substeps import Project, Replace, Substep, Witness
from ctlib.transformer import FeedForward, pre_norm_step

_RESNET, _CVT = "resnet.modeling_resnet", "cvt.modeling_cvt"
(RESNET,) = parts(_RESNET, "ResNetModel")
(CVT,) = parts(_CVT, "CvtModel")
(CVT_WITH_HEAD,) = parts(_CVT, "CvtForImageClassification")
IMAGE_PARTS = CONVOLUTIONS | {
    "torch.nn.modules.batchnorm.BatchNorm2d",
    "torch.nn.modules.pooling.MaxPool2d",
    "torch.nn.modules.pooling.AdaptiveAvgPool2d",
}
RESNET_PARTS = (
    TORCH_PARTS
    | IMAGE_PARTS
    | parts(
        _RESNET,
        "ResNetModel ResNetEmbeddings ResNetEncoder ResNetStage ResNetBasicLayer ResNetBottleNeckLayer "
        "ResNetConvLayer ResNetShortCut",
    )
)
CVT_PARTS = (
    TORCH_PARTS
    | IMAGE_PARTS
    | parts(
        _CVT,
        "CvtForImageClassification CvtModel CvtEncoder CvtStage CvtEmbeddings CvtConvEmbeddings CvtLayer CvtAttention "
        "CvtSelfAttention CvtSelfAttentionProjection CvtSelfAttentionConvProjection CvtSelfAttentionLinearProjection "
        "CvtSelfOutput CvtIntermediate CvtOutput CvtDropPath",
    )
)


def closed(owner: nn.Module, attribute: str, witness: Witness | None = None) -> Substep:
    """The activation of `owner` as a substep: the projection on S₂, or a pointwise map that replaces the state."""
    closing = activation(owner, attribute)
    return Project(closing, witness) if isinstance(closing, Set) else Replace(closing, witness=witness)


def convolved(layer: nn.Module) -> Map:
    """A convolution and the batch normalisation after it, as one linear operator."""
    return Standardise(layer.normalization) @ Convolution(layer.convolution)


def image_of(u: Field, *_, **__) -> Tensor:
    """The answer of a model that returns an image: features before rows and columns."""
    return image(u)


# ----------------------------------------------------------------------------------------------------------- ResNet


def residual_step(layer: nn.Module, path: str, label: int | str) -> Sequential:
    """A block of ResNet: u ← P_{S₂}(u + A[u]), with A two or three convolutions, closed by S₂ in between.

    Where the block changes the grid or the features, the u that A is added to goes through a convolution as well: the
    block is then no time step but a jump from one domain to another.
    """
    branch = [Replace(convolved(c), activation(c, "activation")) for c in layer.layer[:-1]]
    branch.append(Replace(convolved(layer.layer[-1]), witness=Witness(f"{path}.layer", "out")))
    if isinstance(layer.shortcut, nn.Identity):
        straight = Sequential()
    else:
        label = f"block {label}"
        straight = Replace(convolved(layer.shortcut), witness=Witness(f"{path}.shortcut", "out"))
    return Sequential(
        Parallel(straight, Sequential(*branch), weights=(1, 1), witness=Witness(f"{path}.activation", "in")),
        closed(layer, "activation", Witness(path, "out")),
        label=label,
    )


def recover_resnet(model: nn.Module) -> Recovered:
    """ResNetModel; the scheme stands for its `last_hidden_state`, an image."""
    require_known(model, RESNET_PARTS)
    stem = model.embedder.embedder
    steps, n = [], 0
    for s, stage in enumerate(model.encoder.stages):
        for i, layer in enumerate(stage.layers):
            steps.append(residual_step(layer, f"encoder.stages.{s}.layers.{i}", n))
            n += 1
    scheme = Sequential(
        Sequential(
            Replace(
                convolved(stem), activation(stem, "activation"), witness=Witness("embedder.embedder.activation", "out")
            ),
            Replace(Supremum(model.embedder.pooler), witness=Witness("embedder", "out")),
            label="start",
        ),
        *steps,
    )

    def read(pixel_values: Float[Tensor, "batch colours rows columns"]) -> Field:
        return field_of_pixels(pixel_values, stem.convolution)

    return Recovered(model, scheme, read, image_of, last_hidden_state(model))


# -------------------------------------------------------------------------------------------------------------- CvT


def cvt_step(layer: nn.Module, path: str, n: int) -> Sequential:
    """A layer of CvT: Q, K and V are depthwise convolutions, standardised, and then kernels on Ω_y.

    The convolutions of K and V have a stride: attention integrates over a coarser grid than it is evaluated on.  The
    scale of the scores is 1/√|Ω_y|, over all features and not over those of a head.
    """
    a = layer.attention.attention

    def transform(name: str) -> Map:
        projection = getattr(a, f"convolution_projection_{name}").convolution_projection
        return kernel(getattr(a, f"projection_{name}"), f"W^{name[0].upper()}") @ convolved(projection)

    attention = Attention(
        *map(transform, ("query", "key", "value")),
        kernel(layer.attention.output.dense, "W^O"),
        a.num_heads,
        scale=a.scale,
    )
    network = FeedForward(
        kernel(layer.intermediate.dense, "W_1"),
        activation(layer.intermediate, "activation"),
        kernel(layer.output.dense, "W_2"),
    )
    return pre_norm_step(
        attention,
        layer_norm(layer.layernorm_before),
        network.operator(),
        layer_norm(layer.layernorm_after),
        witnesses=(Witness(f"{path}.layernorm_after", "in"), Witness(path, "out")),
        label=n,
    )


def cvt_stage(stage: nn.Module, path: str, s: int) -> Sequential:
    """A grid of CvT: a convolution with stride leads to it; S₁, perhaps an atom, and the layers act on it."""
    config = stage.config
    method = config.qkv_projection_method[s]
    require(method == "dw_bn", stage, f"config.qkv_projection_method[{s}]", f"{method!r} is not known ('dw_bn' is).")
    e = stage.embedding.convolution_embeddings
    shown = f"{path}.embedding.convolution_embeddings"
    steps = [
        Replace(Convolution(e.projection), witness=Witness(f"{shown}.projection", "out")),
        Project(layer_norm(e.normalization), witness=Witness(f"{shown}.normalization", "out")),
    ]
    if config.cls_token[s]:
        steps.append(Replace(Adjoin(stage.cls_token)))
    layers = [cvt_step(layer, f"{path}.layers.{n}", n) for n, layer in enumerate(stage.layers)]
    return Sequential(*steps, *layers, label=f"stage {s}")


def recover_cvt(model: nn.Module, path: str = "") -> Recovered:
    """CvtModel; the scheme stands for its `last_hidden_state`, an image.  `path`: where it stands in a larger model."""
    require_known(model, CVT_PARTS)
    atoms = model.config.cls_token
    require(not any(atoms[:-1]), model, "config.cls_token", f"{atoms}: a class token is known in the last stage only.")
    stages = [cvt_stage(stage, f"{path}encoder.stages.{s}", s) for s, stage in enumerate(model.encoder.stages)]
    first = model.encoder.stages[0].embedding.convolution_embeddings.projection

    def read(pixel_values: Float[Tensor, "batch colours rows columns"]) -> Field:
        return field_of_pixels(pixel_values, first)

    # CvT writes its softmax and its products out.
    return Recovered(model, Sequential(*stages), read, image_of, last_hidden_state(model), same_primitives=False)


def recover_cvt_with_head(model: nn.Module) -> Recovered:
    """CvtForImageClassification; the scheme stands for its `logits`."""
    require_known(model, CVT_PARTS)
    body = recover_cvt(model.cvt, "cvt.")
    atoms = model.config.cls_token
    require(atoms[-1], model, "config.cls_token", f"{atoms}: the head reads the class token of the last stage.")
    head = Sequential(
        Replace(Restrict()),
        Project(layer_norm(model.layernorm), witness=Witness("layernorm", "out")),
        *([] if isinstance(model.classifier, nn.Identity) else [Replace(kernel(model.classifier, "W"))]),
        label="head",
    )

    def write(u: Field, *_, **__) -> Tensor:
        return u.values.squeeze(1)

    def run(*args, **kwargs) -> Tensor:
        return model(*args, **kwargs).logits

    return Recovered(model, Sequential(*body.scheme.maps, head), body.read, write, run, same_primitives=False)
