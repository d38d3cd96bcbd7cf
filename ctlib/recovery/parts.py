"""What a network is made of, read with care: every part is known, or the recovery says which part is not.

A recovered scheme is exact only if nothing acts behind its back: a subclass with another `forward`, a hook, a
parametrisation, an activation that was never seen.  All of these are looked for here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ctlib.operators import Kernel, Map, Pointwise
from ctlib.sets import MeanVariance, Nonnegative


class RecoveryError(ValueError):
    """The network, or the input it was given, is not one that its scheme describes exactly."""


def class_name(part: object) -> str:
    """The qualified name of a part's class: names, so that a package need not be there to be known."""
    return f"{type(part).__module__}.{type(part).__qualname__}"


def require_known(model: nn.Module, known: set[str]) -> None:
    """Check that each part of the model is exactly of a known class, and that nothing hooks into it.

    Raises RecoveryError naming the part.
    """
    for path, part in model.named_modules():
        where = f"{type(model).__name__}{'.' if path else ''}{path}"
        if class_name(part) not in known:
            raise RecoveryError(
                f"{where} is a {class_name(part)}, which is not known here (a subclass may compute anything)."
            )
        if "forward" in vars(part):
            raise RecoveryError(
                f"{where}.forward was replaced on this object; its class no longer says what it computes."
            )
        if any((part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)):
            raise RecoveryError(f"{where} has hooks, which may change what it computes; remove them first.")


def require(holds: bool, part: nn.Module, attribute: str, why: str) -> None:
    """Raise RecoveryError naming the part's class and attribute unless `holds`."""
    if not holds:
        raise RecoveryError(f"{type(part).__name__}.{attribute}: {why}")


def kernel(linear: nn.Linear, symbol: str) -> Kernel:
    """A fully connected layer as an integral over Ω_y; it shares the layer's tensors."""
    return Kernel(linear.weight, linear.bias, symbol)


def layer_norm(norm: nn.LayerNorm) -> MeanVariance:
    """Layer normalisation as the projection on S₁; it shares the layer's gain and bias.

    Raises RecoveryError when it normalises over more than the features.
    """
    shape = tuple(norm.normalized_shape)
    require(len(shape) == 1, norm, "normalized_shape", f"{shape} spans more than the features, so its set is not S₁.")
    sigma1 = 0.0 if norm.bias is None else norm.bias
    sigma2 = 1.0 if norm.weight is None else norm.weight
    return MeanVariance(sigma1, sigma2, norm.eps)


#: Activations that are pointwise but no projection, by the name of their class, with their name in print.
POINTWISE = {
    "torch.nn.modules.activation.GELU": "GELU",
    "torch.nn.modules.activation.SiLU": "SiLU",
    "torch.nn.modules.activation.Tanh": "tanh",
    "transformers.activations.GELUActivation": "GELU",
    "transformers.activations.NewGELUActivation": "GELU",
    "transformers.activations.GELUTanh": "GELU",
    "transformers.activations.FastGELUActivation": "GELU",
    "transformers.activations.QuickGELUActivation": "GELU",
    "transformers.activations.SiLUActivation": "SiLU",
}
#: The same, for functions.
POINTWISE_FUNCTIONS = {F.gelu: "GELU", F.silu: "SiLU", torch.tanh: "tanh"}
RELU_FUNCTIONS = (F.relu, torch.relu)
RELU = "torch.nn.modules.activation.ReLU"
ACTIVATIONS = {RELU, *POINTWISE}


def activation(owner: nn.Module, attribute: str) -> Map:
    """The activation that `owner` keeps under `attribute`: S₂ for ReLU, a pointwise map for GELU, SiLU and tanh.

    Raises RecoveryError when it is none of these.
    """
    function = getattr(owner, attribute)
    if class_name(function) == RELU or function in RELU_FUNCTIONS:
        return Nonnegative()
    name = POINTWISE.get(class_name(function))
    if name is None and not isinstance(function, nn.Module):
        name = POINTWISE_FUNCTIONS.get(function)
    told = (
        class_name(function) if isinstance(function, nn.Module) else getattr(function, "__qualname__", repr(function))
    )
    require(name is not None, owner, attribute, f"the activation {told} is not known (ReLU, GELU, SiLU and tanh are).")
    return Pointwise(function, name)


#: Parts that drop out when they are themselves in training mode, whatever a Dropout inside says; and by what attribute.
DROPPING = {
    "torch.nn.modules.activation.MultiheadAttention": "dropout",
    "transformers.models.bert.modeling_bert.BertSelfAttention": "dropout",
    "transformers.models.albert.modeling_albert.AlbertAttention": "attention_dropout",
    "transformers.models.gpt2.modeling_gpt2.GPT2Attention": "attn_dropout",
    "transformers.models.llama.modeling_llama.LlamaAttention": "attention_dropout",
    "transformers.models.vit.modeling_vit.ViTAttention": "attention_dropout",
    "transformers.models.vivit.modeling_vivit.VivitAttention": "attention_dropout",
    "transformers.models.dinov2.modeling_dinov2.Dinov2Attention": "attention_dropout",
    "transformers.models.dinov2.modeling_dinov2.Dinov2DropPath": "drop_prob",
    "transformers.models.swin.modeling_swin.SwinAttention": "attention_dropout",
    "transformers.models.swin.modeling_swin.SwinDropPath": "drop_prob",
    "transformers.models.cvt.modeling_cvt.CvtDropPath": "drop_prob",
    "transformers.models.timesformer.modeling_timesformer.TimesformerDropPath": "drop_prob",
    "transformers.models.t5.modeling_t5.T5Attention": "dropout",
    **{f"torch.nn.modules.dropout.Dropout{kind}": "p" for kind in ("", "1d", "2d", "3d")},
}


def changing(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The parts that act otherwise in training than in evaluation, with their paths."""
    return [
        (path, part)
        for path, part in model.named_modules()
        if class_name(part) in DROPPING or isinstance(part, nn.BatchNorm2d)
    ]


def require_evaluation(model: nn.Module, path: str, part: nn.Module) -> None:
    """Check that such a part would act as in evaluation if it were called now."""
    if not part.training:
        return
    where = f"{type(model).__name__}.{path}"
    if isinstance(part, nn.BatchNorm2d):
        raise RecoveryError(f"{where} takes the statistics of the batch while training; call model.eval() first.")
    rate = getattr(part, DROPPING[class_name(part)])
    if (rate.p if isinstance(rate, nn.Dropout) else rate) > 0:
        raise RecoveryError(f"{where} drops out at random while training; call model.eval() first.")
