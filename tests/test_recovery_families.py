"""Every other family of networks: the scheme is the network, at every option; what isn't known is refused by name.

`EXACT` families are equal in every bit to the network's own path.  The others compute their attention or their joining
of branches by other primitives, and agree to a few machine epsilon.
"""

import pytest
import torch
from networks import draw, normal

from ctlib import certify, recover
from ctlib.recovery import RecoveryError

DTYPES = [torch.float64, torch.float32]
IDS = torch.arange(30).view(3, 10) % 7 + 1
RIGHT, LEFT = torch.ones(3, 10, dtype=torch.long), torch.ones(3, 10, dtype=torch.long)
RIGHT[1, 6:] = 0
LEFT[1, :4] = 0
TEXT = {"input_ids": IDS}
PADDED = [{"attention_mask": RIGHT}, {"attention_mask": LEFT}]
PAIR = {"input_ids": IDS, "decoder_input_ids": IDS[:, :6]}

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
WORDS = {"vocab_size": 50, "max_position_embeddings": 16}


def pixels(*shape, seed=5):
    return {"pixel_values": normal(*shape, seed=seed)}


def make(name, **options):
    """A small network of `transformers` with random parameters in float64."""
    import transformers

    defaults = {
        "AlbertModel": {**SIZES, **WORDS, "embedding_size": 12},
        "GPT2Model": {"vocab_size": 50, "n_positions": 16, "n_embd": 24, "n_layer": 2, "n_head": 3},
        "LlamaModel": {**SIZES, **WORDS, "num_attention_heads": 6, "num_key_value_heads": 2},
        "ViTModel": {**SIZES, "image_size": 16, "patch_size": 4},
        "Dinov2Model": {**SIZES, "image_size": 12, "patch_size": 4, "layerscale_value": 0.3},
        "VivitModel": {**SIZES, "image_size": 16, "num_frames": 4, "tubelet_size": [2, 4, 4]},
        "TimesformerModel": {**SIZES, "image_size": 16, "patch_size": 4, "num_frames": 3},
        "SwinModel": {"image_size": 32, "embed_dim": 12, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        "CvtModel": {"embed_dim": [8, 12, 18], "num_heads": [1, 2, 3], "depth": [1, 2, 3]},
        "ResNetModel": {"embedding_size": 6, "hidden_sizes": [6, 12], "depths": [2, 2], "layer_type": "basic"},
        "T5Model": {"vocab_size": 50, "d_model": 24, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 3},
    }
    model = getattr(transformers, name)
    body = {"GPT2LMHeadModel": "GPT2Model", "LlamaForCausalLM": "LlamaModel", "CvtForImageClassification": "CvtModel"}
    return draw(model(model.config_class(**{**defaults[body.get(name, name)], **options})))


ROPE = {"rope_theta": 5000.0, "factor": 2.0}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
EXACT = [
    ("AlbertModel", {}, TEXT, PADDED[:1]),
    ("AlbertModel", {"num_hidden_groups": 2, "inner_group_num": 2, "num_hidden_layers": 4}, TEXT, []),
    ("AlbertModel", {"hidden_act": "relu", "layer_norm_eps": 1e-3}, TEXT, []),
    ("GPT2Model", {}, TEXT, PADDED),
    ("GPT2Model", {"activation_function": "relu", "n_inner": 7, "scale_attn_by_inverse_layer_idx": True}, TEXT, []),
    ("GPT2Model", {"scale_attn_weights": False, "n_head": 1}, TEXT, PADDED[:1]),
    ("GPT2LMHeadModel", {}, TEXT, PADDED[:1]),
    ("LlamaModel", {}, TEXT, PADDED),
    ("LlamaModel", {"num_key_value_heads": 6, "attention_bias": True, "mlp_bias": True}, TEXT, PADDED[:1]),
    ("LlamaModel", {"num_key_value_heads": 1, "hidden_act": "gelu", "head_dim": 6, "rms_norm_eps": 1e-3}, TEXT, PADDED),
    ("LlamaModel", {"rope_parameters": {"rope_type": "linear", **ROPE}}, TEXT, []),
    ("LlamaModel", {"rope_parameters": {"rope_type": "llama3", **ROPE, **LLAMA3}}, TEXT, []),
    ("LlamaForCausalLM", {}, TEXT, PADDED[:1]),
    ("LlamaForCausalLM", {"tie_word_embeddings": True}, TEXT, []),
    ("ViTModel", {}, pixels(2, 3, 16, 16), []),
    ("ViTModel", {"qkv_bias": False, "hidden_act": "relu", "num_attention_heads": 2}, pixels(1, 3, 16, 16), []),
    ("ViTModel", {"image_size": [12, 20], "num_channels": 1}, pixels(2, 1, 12, 20), []),
    ("Dinov2Model", {}, pixels(2, 3, 12, 12), [pixels(1, 3, 20, 16), pixels(3, 3, 13, 31)]),
    ("Dinov2Model", {"use_swiglu_ffn": True, "qkv_bias": False}, pixels(2, 3, 12, 12), []),
    ("VivitModel", {}, pixels(2, 4, 3, 16, 16), []),
    ("SwinModel", {}, pixels(2, 3, 32, 32), [pixels(1, 3, 39, 50)]),
    ("SwinModel", {"qkv_bias": False, "use_absolute_embeddings": True, "mlp_ratio": 2.0}, pixels(2, 3, 32, 32), []),
    ("T5Model", {}, PAIR, [{"attention_mask": RIGHT}, {"decoder_attention_mask": RIGHT[:, :6]}]),
    ("T5Model", {"feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 8}, PAIR, []),
]
CLOSE = [
    ("CvtModel", {}, pixels(2, 3, 64, 64), [pixels(1, 3, 45, 52)]),
    ("CvtModel", {"cls_token": [False, False, False], "qkv_bias": [False, False, False]}, pixels(2, 3, 64, 64), []),
    ("CvtForImageClassification", {}, pixels(2, 3, 64, 64), []),
    ("ResNetModel", {}, pixels(2, 3, 33, 40), []),
    ("ResNetModel", {"layer_type": "bottleneck", "hidden_sizes": [8, 16]}, pixels(2, 3, 33, 40), []),
    ("ResNetModel", {"hidden_act": "gelu", "downsample_in_first_stage": True}, pixels(1, 3, 48, 33), []),
    ("TimesformerModel", {}, pixels(2, 3, 3, 16, 16), []),
    ("TimesformerModel", {"attention_type": "joint_space_time", "qkv_bias": False}, pixels(1, 3, 3, 16, 16), []),
]


def cast(arguments, dtype):
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in arguments.items()}


def cases(families):
    return [
        pytest.param(name, options, {**first, **more}, id=f"{name} {options} {sorted(more)}")
        for name, options, first, others in families
        for more in ({}, *others)
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "options", "arguments"), cases(EXACT))
def test_equal_in_every_bit(name, options, arguments, dtype):
    certificate = certify(make(name, **options).to(dtype), **cast(arguments, dtype))
    assert certificate.bit_equal, certificate
    assert certificate.ok, certificate
    assert all(s.alone == 0 for s in certificate.substeps), certificate


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "options", "arguments"), cases(CLOSE))
def test_equal_up_to_roundoff(name, options, arguments, dtype):
    certificate = certify(make(name, **options).to(dtype), **cast(arguments, dtype))
    assert certificate.ok, certificate


UNET = [
    ({"normalization": "batch", "padding": 1}, (2, 3, 16, 24)),
    ({}, (1, 3, 60, 68)),
    ({"num_encoding_blocks": 2, "activation": "GELU", "padding": 1, "out_classes": 5}, (2, 3, 8, 8)),
    ({"initial_dilation": 1, "padding": 1, "activation": "SiLU"}, (1, 3, 16, 16)),
]


def unet(**options):
    from unet.unet import UNet

    return draw(UNet(**{"in_channels": 3, "num_encoding_blocks": 3, "out_channels_first_layer": 4, **options}))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("options", "shape"), UNET, ids=str)
def test_unet_up_to_roundoff(options, shape, dtype):
    certificate = certify(unet(**options).to(dtype), normal(*shape).to(dtype))
    assert certificate.ok, certificate


def test_a_unet_has_substeps_but_no_equation():
    equation = recover(unet()).latex()
    assert "u_t" not in equation
    assert r"\sup" in equation


def test_an_equation_repeats_what_happens_twice():
    """The last projection of the decoder is not lost because the encoder has one that prints alike."""
    equation = recover(make("T5Model")).latex()
    assert equation.count(r"u^{+} &= P_{S_3}") == 2


def test_albert_is_autonomous():
    """The same θ in every layer: all time steps hold the same tensors."""
    steps = [m for m in recover(make("AlbertModel", num_hidden_layers=3)).scheme.maps if isinstance(m.label, int)]
    kernels = [step.maps[0].rate.Q.weight for step in steps]
    assert len(steps) == 3
    assert all(k is kernels[0] for k in kernels)


@pytest.mark.parametrize("name", ["GPT2Model", "LlamaModel"])
@torch.no_grad()
def test_what_comes_later_is_not_seen(name):
    scheme, other = recover(make(name)), IDS.clone()
    other[:, 6:] = 9
    assert torch.equal(scheme(IDS)[:, :6], scheme(other)[:, :6])
    assert not torch.equal(scheme(IDS)[:, 6:], scheme(other)[:, 6:])


@torch.no_grad()
def test_texts_that_start_anew_are_apart():
    """Positions that start anew in one row pack two texts into it, where the network keeps no cache."""
    model = make("LlamaModel", use_cache=False)
    packed = torch.cat((torch.arange(6), torch.arange(4)))[None].expand(3, -1)
    assert certify(model, IDS, position_ids=packed).bit_equal
    alone = recover(model)(IDS[:, 6:])
    assert torch.allclose(recover(model)(IDS, position_ids=packed)[:, 6:], alone, rtol=0, atol=1e-12)


@torch.no_grad()
def test_rotary_scores_depend_on_the_difference_of_positions():
    model = make("LlamaModel")
    moved = recover(model)(IDS, position_ids=torch.arange(100, 110)[None])
    # angles are float32, which moves them by up to 110 epsilon of it
    assert torch.allclose(recover(model)(IDS), moved, rtol=0, atol=1e-3)


def eager(name):
    model = make(name)
    model.set_attn_implementation("eager")
    return model


DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
REFUSED = {
    "eager GPT-2": (lambda: eager("GPT2Model"), r"GPT2Model.config._attn_implementation"),
    "eager ViT": (lambda: eager("ViTModel"), r"ViTModel.config._attn_implementation"),
    "cross-attention": (lambda: make("GPT2Model", add_cross_attention=True), r"GPT2Block.crossattention"),
    "changing angles": (lambda: make("LlamaModel", rope_parameters=DYNAMIC), r"rope_type'\]: 'dynamic'"),
    "an activation": (lambda: make("LlamaModel", hidden_act="mish"), r"LlamaMLP.*|Mish"),
    "pictures alone": (lambda: make("TimesformerModel", attention_type="space_only"), r"attention_type: 'space_only'"),
    "an early class token": (lambda: make("CvtModel", cls_token=[True, False, True]), r"config.cls_token"),
    "no class token": (
        lambda: make("CvtForImageClassification", cls_token=[False] * 3),
        r"config.cls_token.*the head reads",
    ),
    "a shortcut": (lambda: unet(residual=True, padding=1), r"residual|shortcut"),
    "an activation first": (lambda: unet(preactivation=True), r"activation before its convolution"),
    "dropout in a U-Net": (lambda: unet(dropout=0.1), r"Dropout2d"),
    "mean pooling": (lambda: unet(pooling_type="avg"), r"AvgPool2d"),
    "three dimensions": (lambda: unet(dimensions=3, num_encoding_blocks=2), r"BatchNorm3d|Conv3d|MaxPool3d"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_is_not_known_is_refused_by_name(case):
    build, named = REFUSED[case]
    with pytest.raises(RecoveryError, match=named):
        recover(build())


BAD_INPUT = {
    "too many tokens": ("GPT2Model", {"input_ids": torch.ones(1, 17, dtype=torch.long)}, "17 tokens.*16 positions"),
    "no text": ("LlamaModel", {}, "exactly one of input_ids and inputs_embeds"),
    "no text for the decoder": ("T5Model", TEXT, "exactly one of decoder_input_ids"),
    "one text without a batch": ("LlamaModel", {"input_ids": IDS[0]}, "expected a batch of texts"),
    "a mask of another shape": ("LlamaModel", {**TEXT, "attention_mask": RIGHT[:, :5]}, "attention_mask: expected"),
    "nothing left to see": (
        "T5Model",
        {**PAIR, "decoder_attention_mask": LEFT[:, :6]},
        "decoder_attention_mask.*sees no other",
    ),
    "no picture": ("ViTModel", {"pixel_values": normal(2, 3, 16)}, "pixel_values: expected"),
    "other colours": ("Dinov2Model", pixels(2, 1, 12, 12), "with 3 colours"),
    "another size": ("ViTModel", pixels(2, 3, 20, 16), "20 patches.*16 positions"),
    "a small picture": ("Dinov2Model", pixels(2, 3, 12, 3), "less than one patch"),
    "a window too large": ("SwinModel", pixels(1, 3, 16, 16), "less than a window of 4"),
    "other frames": ("TimesformerModel", pixels(1, 4, 3, 16, 16), "4 frames"),
}


@pytest.mark.parametrize("case", list(BAD_INPUT))
def test_input_of_the_wrong_kind_is_refused(case):
    name, arguments, told = BAD_INPUT[case]
    with pytest.raises(RecoveryError, match=told):
        recover(make(name))(**arguments)


@pytest.mark.parametrize("name", ["AlbertModel", "GPT2Model", "LlamaModel", "ViTModel", "Dinov2Model", "SwinModel"])
def test_dropout_in_training_is_refused_by_name(name):
    rates = {
        "AlbertModel": "attention_probs_dropout_prob",
        "GPT2Model": "attn_pdrop",
        "LlamaModel": "attention_dropout",
    }
    model = make(name, **{rates.get(name, "attention_probs_dropout_prob"): 0.1}).train()
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.eval()
    arguments = TEXT if name in rates else pixels(1, 3, *((32, 32) if name == "SwinModel" else (16, 16)))
    with pytest.raises(RecoveryError, match="drops out at random"):
        recover(model)(**arguments)


@pytest.mark.parametrize("name", ["ResNetModel", "CvtModel"])
def test_statistics_of_the_batch_are_refused(name):
    with pytest.raises(RecoveryError, match="statistics of the batch"):
        recover(make(name).train())(**pixels(2, 3, 64, 64))


EVERY = {name: arguments for name, options, arguments, _ in EXACT + CLOSE if not options}


@torch.no_grad()
@pytest.mark.parametrize("name", EVERY)
def test_a_network_that_was_cast_is_still_its_scheme(name):
    model, arguments = make(name), EVERY[name]
    scheme = recover(model)
    model.half().double()
    assert scheme.certify(**arguments).ok
    model.float()
    assert scheme.certify(**cast(arguments, torch.float32)).ok


@torch.no_grad()
def test_the_tensors_are_shared():
    """What is trained, moved or cast in the network is so in the scheme, buffers included."""
    model = make("CvtModel")
    scheme = recover(model)
    draw(model, seed=8)
    for part in model.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_var.mul_(2)
    assert scheme.certify(**pixels(2, 3, 64, 64)).ok
    model.float()
    assert scheme.certify(**cast(pixels(2, 3, 64, 64), torch.float32)).ok


FAULTS = {
    "ε": ("LlamaModel", TEXT, lambda s: setattr(s.maps[1].maps[0].rate.inner, "eps", 1e-2), "1+1/2"),
    "the scale": (
        "ViTModel",
        pixels(2, 3, 16, 16),
        lambda s: setattr(s.maps[2].maps[0].rate.outer, "scale", 0.3),
        "1+1/2",
    ),
    "rotary positions": ("LlamaModel", TEXT, lambda s: setattr(s.maps[0].maps[0].rate.outer, "rotary", None), "0+1/2"),
    "the causal measure": (
        "GPT2Model",
        TEXT,
        lambda s: setattr(s.maps[0].maps[0].rate.outer, "causal", False),
        "0+1/2",
    ),
}


@pytest.mark.parametrize("case", list(FAULTS))
def test_a_planted_fault_is_seen_at_its_substep_and_nowhere_else(case):
    name, arguments, plant, where = FAULTS[case]
    scheme = recover(make(name))
    plant(scheme.scheme)
    certificate = scheme.certify(**arguments)
    assert not certificate.ok
    assert [s.name for s in certificate.substeps if s.alone > certificate.bound] == [where]
