"""`unet.UNet`, the U-Net of Ronneberger et al. as the package `unet` builds it in two dimensions.

A U-Net is a hybrid splitting over several grids, as the paper's authors found for PottsMGNet: on each grid, one branch
stays and the other goes to the coarser grid and comes back; their ends are added.  The concatenation of the two
branches before a convolution is that sum, because the convolution of a concatenation is the sum of two convolutions.
"""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ctlib.convolutions import Convolution, Refine, Standardise, Supremum, image, with_image
from ctlib.field import Field
from ctlib.operators import Map
from ctlib.recovery.convolutional import IMAGE_PARTS, closed, image_of
from ctlib.recovery.huggingface import TORCH_PARTS
from ctlib.recovery.parts import activation, class_name, require, require_known
from ctlib.recovery.recovered import Recovered
from ctlib.recovery.vit import field_of_pixels
from ctlib.splitting import Parallel, Sequential
from ctlib.substeps import Replace, Witness

MODELS = ("unet.unet.UNet", "unet.unet.UNet2D")
PARTS = (
    TORCH_PARTS
    | IMAGE_PARTS
    | set(MODELS)
    | {"torch.nn.modules.conv.ConvTranspose2d"}
    | {"unet.encoding.Encoder", "unet.encoding.EncodingBlock", "unet.decoding.Decoder", "unet.decoding.DecodingBlock"}
    | {"unet.conv.ConvolutionalBlock"}
)


class Crop(Map):
    """u on the middle of the grid, as much of it as a finer grid that comes from the coarser one will cover."""

    def __init__(self, border: int):
        self.border = border

    def __call__(self, u: Field) -> Field:
        b = self.border
        return with_image(u, F.pad(image(u), (-b, -b, -b, -b)))

    def __str__(self) -> str:
        return f"crop by {self.border}"

    def tex(self, u: str) -> str:
        return rf"{u}\big|_{{\Omega_x^\circ}}"


def closed_convolution(block: nn.Module, path: str) -> Replace:
    """A convolution with all that follows it in its block: batch normalisation, then S₂."""
    convolution = Convolution(block.conv_layer)
    linear = convolution if block.norm_layer is None else Standardise(block.norm_layer) @ convolution
    closing = None if block.activation_layer is None else activation(block, "activation_layer")
    return Replace(linear, closing, witness=Witness(path, "out"))


def lost(*blocks: nn.Module) -> int:
    """How many nodes at each border the convolutions of these blocks take away."""
    layers = [c.conv_layer for b in blocks for c in (b.conv1, b.conv2)]
    return sum(c.dilation[0] - c.padding[0] for c in layers)


def require_convolution(model: nn.Module, path: str, block: nn.Module) -> None:
    """Check that a block is a convolution, then perhaps batch normalisation, then perhaps an activation."""
    order = [part for part in (block.conv_layer, block.norm_layer, block.activation_layer) if part is not None]
    require(list(block.block) == order, model, path, "dropout, or an activation before its convolution, is not known.")
    mode = block.conv_layer.padding_mode
    require(mode == "zeros", model, f"{path}.conv_layer.padding_mode", f"{mode!r} is not known.")


def recover_unet(model: nn.Module) -> Recovered:
    """UNet in two dimensions; the scheme stands for the scores of every pixel, an image."""
    require_known(model, PARTS)
    for path, part in model.named_modules():
        if class_name(part) == "unet.conv.ConvolutionalBlock":
            require_convolution(model, path, part)
        require(not getattr(part, "residual", False), model, path, "a block with a shortcut is not known.")
    down, bottom, up = model.encoder.encoding_blocks, model.bottom_block, model.decoder.decoding_blocks[::-1]

    def level(k: int) -> tuple[Sequential, int]:
        """What happens on grid k and on all coarser ones, and how many nodes at each border that takes away."""
        path, block = ("bottom_block", bottom) if k == len(down) else (f"encoder.encoding_blocks.{k}", down[k])
        here = [closed_convolution(getattr(block, c), f"{path}.{c}") for c in ("conv1", "conv2")]
        if k == len(down):
            return Sequential(*here), lost(block)
        below, coarse = level(k + 1)
        border = 2 * coarse  # a node of the coarser grid is two of this one
        path, merge = f"decoder.decoding_blocks.{len(down) - 1 - k}", up[k]
        joined, stays = merge.conv1, block.conv2.conv_layer.out_channels
        left = Convolution(joined.conv_layer, "k_1", slice(0, stays))
        right = Convolution(joined.conv_layer, "k_2", slice(stays, None), bias=False)
        branches = Parallel(
            Replace(left @ Crop(border) if border else left),
            Sequential(
                Replace(Supremum(block.downsample)),
                below,
                Replace(Refine(merge.upsample), witness=Witness(f"{path}.upsample", "out")),
                Replace(right),
            ),
            weights=(1, 1),
            witness=Witness(f"{path}.conv1.conv_layer", "out"),
        )
        after = [] if joined.norm_layer is None else [Replace(Standardise(joined.norm_layer))]
        after += [] if joined.activation_layer is None else [closed(joined, "activation_layer")]
        last = closed_convolution(merge.conv2, f"{path}.conv2")
        return Sequential(*here, branches, *after, last), lost(block) + border + lost(merge)

    def read(x: Float[Tensor, "batch features rows columns"]) -> Field:
        return field_of_pixels(x, down[0].conv1.conv_layer)

    head = Replace(Convolution(model.classifier.conv_layer), witness=Witness("classifier", "out"))
    return Recovered(model, Sequential(*level(0)[0].maps, head, label="U"), read, image_of, model)
