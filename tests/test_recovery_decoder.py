"""torch's decoder layers, stacks and the whole encoder–decoder: equal in every bit, at any option."""

import pytest
import torch
from networks import BATCH, FEATURES, HEADS, HIDDEN, TOKENS, draw, normal
from torch import nn

from ctlib import Field, certify, recover
from ctlib.operators import Exchange, Given
from ctlib.recovery import RecoveryError

TARGETS = 5
PADDING = torch.zeros(BATCH, TOKENS, dtype=torch.bool)
PADDING[1, 4:] = True


@pytest.fixture(autouse=True)
def general_path():
    """torch's layers by their parts: the reference; the fused path rounds otherwise."""
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad():
        yield
    torch.backends.mha.set_fastpath_enabled(True)


def whole(dtype=torch.float64, norm_first=False, batch_first=True, activation="relu", bias=True):
    options = {"batch_first": batch_first, "norm_first": norm_first, "activation": activation, "bias": bias}
    options["dtype"] = dtype
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(FEATURES, HEADS, HIDDEN, **options),
        2,
        nn.LayerNorm(FEATURES, bias=bias, dtype=dtype),
        enable_nested_tensor=False,
    )
    return draw(nn.Transformer(FEATURES, HEADS, 2, 3, HIDDEN, custom_encoder=encoder, **options), dtype)


def texts(dtype=torch.float64, batch_first=True):
    src, tgt = normal(BATCH, TOKENS, FEATURES, seed=3).to(dtype), normal(BATCH, TARGETS, FEATURES, seed=4).to(dtype)
    return (src, tgt) if batch_first else (src.transpose(0, 1).contiguous(), tgt.transpose(0, 1).contiguous())


def masks(dtype):
    """Ways to restrict the three measures, by name."""
    causal = nn.Transformer.generate_square_subsequent_mask(TARGETS, dtype=dtype)
    numbers = normal(TARGETS, TOKENS, seed=8).to(dtype)
    return {
        "none": {},
        "causal": {"tgt_mask": causal},
        "causal, as a hint": {"tgt_mask": causal, "tgt_is_causal": True},
        "padding": {"src_key_padding_mask": PADDING, "memory_key_padding_mask": PADDING},
        "memory in numbers": {"tgt_mask": causal.isinf(), "memory_mask": numbers},
        "memory per head": {"memory_mask": normal(BATCH * HEADS, TARGETS, TOKENS, seed=9).to(dtype)},
        "memory and padding": {"memory_mask": numbers > 1, "memory_key_padding_mask": PADDING},
        "memory, causal": {"memory_mask": torch.ones(TARGETS, TOKENS).triu(1).bool(), "memory_is_causal": True},
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("name", masks(torch.float64))
def test_the_whole_network_bit_for_bit(dtype, norm_first, batch_first, name):
    model = whole(dtype, norm_first, batch_first)
    src, tgt = texts(dtype, batch_first)
    kwargs = masks(dtype)[name]
    assert torch.equal(recover(model)(src, tgt, **kwargs), model(src, tgt, **kwargs))


@pytest.mark.parametrize("options", [{"bias": False}, {"activation": "gelu"}, {"norm_first": True, "bias": False}])
def test_other_options_bit_for_bit(options):
    model = whole(**options)
    assert certify(model, *texts()).bit_equal


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoders_alone_with_a_batch_and_without(norm_first):
    layer = nn.TransformerDecoderLayer(FEATURES, HEADS, HIDDEN, batch_first=True, norm_first=norm_first)
    decoder = draw(nn.TransformerDecoder(layer, 3))
    memory, tgt = texts()
    assert certify(decoder, tgt, memory).bit_equal
    assert certify(decoder.layers[1], tgt[0], memory[0], memory_key_padding_mask=PADDING[1]).bit_equal


def test_every_state_of_encoder_and_decoder_is_compared():
    certificate = certify(whole(), *texts(), tgt_mask=masks(torch.float64)["causal"]["tgt_mask"])
    assert certificate.ok and certificate.bit_equal
    assert len(certificate.substeps) == 2 * 6 + 1 + 3 * 8 + 1
    assert certificate.unseen == ("exchange+1/1",)
    assert all(s.alone == 0 for s in certificate.substeps)


def test_the_equation_has_a_second_domain():
    tex = recover(whole()).latex()
    assert r"\gamma(\cdot\,;u,m),V[m]" in tex and r"\Omega_{m}" in tex and r"u^{+} &= m^{-},\quad m^{+}=u^{-}" in tex


def test_exchange_twice_is_no_exchange_and_needs_something_to_exchange():
    u, m = Field(normal(1, 3, 2, seed=1)), Field(normal(1, 4, 2, seed=2))
    there = Exchange()(Field(u.values, given=m))
    assert torch.equal(there.values, m.values) and torch.equal(there.given.values, u.values)
    back = Exchange()(there)
    assert torch.equal(back.values, u.values) and torch.equal(back.given.values, m.values)
    with pytest.raises(ValueError, match="no field is given beside u"):
        Given()(u)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tgt": normal(BATCH + 1, TARGETS, FEATURES)}, "tgt and memory must be the same texts"),
        ({"tgt": normal(TARGETS, FEATURES)}, "tgt and memory must be the same texts"),
        ({"tgt": normal(BATCH, TARGETS, FEATURES + 1)}, "tgt: expected"),
        ({"memory_mask": torch.zeros(TOKENS, TARGETS).bool()}, "memory_mask: expected the shape"),
        ({"memory_key_padding_mask": torch.zeros(BATCH, TARGETS).bool()}, "memory_key_padding_mask: expected"),
        ({"memory_is_causal": True}, "is a hint about a mask"),
    ],
)
def test_wrong_arguments_are_named(change, told):
    src, tgt = texts()
    with pytest.raises(RecoveryError, match=told):
        recover(whole())(**{"src": src, "tgt": tgt, **change})


def test_attentions_that_disagree_are_refused():
    layer = draw(nn.TransformerDecoderLayer(FEATURES, HEADS, HIDDEN, batch_first=True))
    layer.multihead_attn.batch_first = False
    with pytest.raises(RecoveryError, match="both attentions of a layer must agree"):
        recover(layer)
