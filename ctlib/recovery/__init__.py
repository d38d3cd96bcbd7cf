"""Networks as splitting schemes: `recover(model)` writes one down, `certify(model, …)` shows that it is exact.

One module for each architecture; `ARCHITECTURES` says which class is read by which function.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from ctlib.recovery import (
    bert,
    convolutional,
    gpt2,
    llama,
    swin,
    t5,
    timesformer,
    torch_decoder,
    torch_encoder,
    unet,
    vit,
)
from ctlib.recovery.certificate import Certificate
from ctlib.recovery.parts import RecoveryError, class_name
from ctlib.recovery.recovered import Recovered

ARCHITECTURES: dict[str, Callable[[nn.Module], Recovered]] = {
    torch_encoder.LAYER: torch_encoder.recover_layer,
    torch_encoder.STACK: torch_encoder.recover_stack,
    torch_decoder.LAYER: torch_decoder.recover_decoder_layer,
    torch_decoder.STACK_OF_DECODERS: torch_decoder.recover_decoder,
    torch_decoder.WHOLE: torch_decoder.recover_transformer,
    bert.BERT: bert.recover_bert,
    bert.ALBERT: bert.recover_albert,
    gpt2.MODEL: gpt2.recover_gpt2,
    gpt2.WITH_HEAD: gpt2.recover_with_head,
    llama.MODEL: llama.recover_llama,
    llama.WITH_HEAD: llama.recover_with_head,
    vit.VIT: vit.recover_vit,
    vit.DINOV2: vit.recover_dinov2,
    vit.VIVIT: vit.recover_vivit,
    timesformer.MODEL: timesformer.recover_timesformer,
    swin.MODEL: swin.recover_swin,
    convolutional.CVT: convolutional.recover_cvt,
    convolutional.CVT_WITH_HEAD: convolutional.recover_cvt_with_head,
    convolutional.RESNET: convolutional.recover_resnet,
    t5.MODEL: t5.recover_t5,
    **dict.fromkeys(unet.MODELS, unet.recover_unet),
}


def recover(model: nn.Module) -> Recovered:
    """Write a network as a splitting scheme that shares its tensors.

    Returns a callable: with the arguments that the model takes, it returns what the model returns (a tensor: for models
    of `transformers` the `logits`, or the `last_hidden_state` where there is no head).

    Raises RecoveryError naming the part that isn't known, when the class or one of its parts or options isn't.
    """
    read = ARCHITECTURES.get(class_name(model))
    if read is None:
        known = ", ".join(name.rpartition(".")[2] for name in ARCHITECTURES)
        raise RecoveryError(f"{class_name(model)} is not a class that can be recovered; known are {known}.")
    return read(model)


def certify(model: nn.Module, *args, **kwargs) -> Certificate:
    """Recover a network and compare the scheme with it on the given arguments, end to end and substep by substep.

    Raises RecoveryError as `recover` does.
    """
    return recover(model).certify(*args, **kwargs)


__all__ = ["ARCHITECTURES", "Certificate", "Recovered", "RecoveryError", "certify", "recover"]
