"""Networks with random parameters: a formula that holds for these holds for all."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


@torch.no_grad()
def draw_parameters(model: nn.Module, normal: Callable[..., Tensor]) -> nn.Module:
    """Give a model weights of size 1/√width, gains near 1 and biases near 0, and make it ready to evaluate.

    Arguments:
        model: its parameters are overwritten, in their own dtype.
        normal: `normal(*shape)` draws standard normal numbers in float64.
    """
    for name, p in model.named_parameters():
        z = normal(*p.shape)
        is_gain = "norm" in name.lower() and name.endswith("weight")
        p.copy_(z / p.shape[-1] ** 0.5 if p.dim() == 2 else is_gain + 0.1 * z)
    return model.eval()
