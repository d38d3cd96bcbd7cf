"""BertModel: equal in every bit to its sdpa path, at any option; refused by name where something isn't known."""

import pytest
import torch
from networks import FEATURES, bert, normal

from ctlib import certify, recover
from ctlib.recovery import RecoveryError

DTYPES = [torch.float64, torch.float32]
IDS = torch.arange(30).view(3, 10) % 7 + 1
PADDING = torch.ones(3, 10, dtype=torch.long)
PADDING[1, 6:] = 0


@torch.no_grad()
def assert_same_bits(model, *args, **kwargs):
    ours, theirs = recover(model)(*args, **kwargs), model(*args, **kwargs).last_hidden_state
    assert torch.equal(ours, theirs), certify(model, *args, **kwargs)


OPTIONS = [
    {},
    {"hidden_act": "relu"},
    {"hidden_act": "gelu_new"},
    {"hidden_act": "silu"},
    {"num_attention_heads": 1},
    {"num_attention_heads": 12},
    {"intermediate_size": 7},
    {"num_hidden_layers": 1},
    {"layer_norm_eps": 1e-5},
    {"type_vocab_size": 3},
    {"hidden_size": 15, "num_attention_heads": 5},
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option(dtype, options):
    model = bert(dtype, **options)
    assert_same_bits(model, IDS)
    assert_same_bits(model, IDS, attention_mask=PADDING)


EMPTY = PADDING.clone()
EMPTY[1] = 0
BLOCK = torch.ones(3, 1, 10, 10, dtype=torch.bool).tril()
INPUTS = {
    "all present": {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)},
    "padding": {"input_ids": IDS, "attention_mask": PADDING},
    "boolean padding": {"input_ids": IDS, "attention_mask": PADDING.bool()},
    "an empty text": {"input_ids": IDS, "attention_mask": EMPTY},
    "a mask with four axes": {"input_ids": IDS, "attention_mask": BLOCK},
    "numbers with four axes": {"input_ids": IDS, "attention_mask": normal(3, 1, 10, 10)},
    "kinds": {"input_ids": IDS, "token_type_ids": IDS % 2},
    "positions": {"input_ids": IDS, "position_ids": torch.arange(10).flip(0)[None]},
    "embeddings": {"inputs_embeds": normal(3, 10, FEATURES)},
}


@pytest.mark.parametrize("case", list(INPUTS))
def test_every_input(case):
    assert_same_bits(bert(), **INPUTS[case])


def test_positional_arguments():
    assert_same_bits(bert(), IDS, PADDING, IDS % 2)


def test_the_pooler_does_not_matter():
    from transformers import BertModel

    model = bert()
    without = BertModel(model.config, add_pooling_layer=False).double().eval()
    without.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("pooler")})
    assert torch.equal(recover(without)(IDS), recover(model)(IDS))


def eager():
    model = bert()
    model.set_attn_implementation("eager")
    return model


def training():
    return bert(hidden_dropout_prob=0.1).train()


REFUSED = {
    "eager attention": (eager, r"BertModel.config._attn_implementation.*set_attn_implementation"),
    "chunks": (lambda: bert(chunk_size_feed_forward=2), r"BertModel.config.chunk_size_feed_forward"),
    "a decoder": (lambda: bert(is_decoder=True), r"BertModel.config.is_decoder"),
    "an activation": (lambda: bert(hidden_act="mish"), r"intermediate_act_fn.*Mish"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_is_not_known_is_refused_by_name(case):
    make, named = REFUSED[case]
    with pytest.raises(RecoveryError, match=named):
        recover(make())


def test_dropout_in_training_is_refused_by_name():
    with pytest.raises(RecoveryError, match=r"BertModel\..*dropout drops out at random"):
        recover(training())(IDS)


def test_attention_drops_out_whatever_its_dropout_says():
    """BERT's attention asks its own training flag; a Dropout set to evaluate does not stop it."""
    model = bert().train()
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.eval()
    with pytest.raises(RecoveryError, match=r"BertModel\.encoder\.layer\.0\.attention\.self drops out"):
        recover(model)(IDS)


BAD_INPUT = {
    "too many tokens": ({"input_ids": torch.ones(1, 17, dtype=torch.long)}, "17 tokens.*16 positions"),
    "one text without a batch": ({"inputs_embeds": normal(10, FEATURES)}, "expected a batch"),
    "nothing": ({}, "exactly one of input_ids and inputs_embeds"),
    "both": ({"input_ids": IDS, "inputs_embeds": normal(3, 10, FEATURES)}, "exactly one"),
    "a mask of another shape": (
        {"input_ids": IDS, "attention_mask": PADDING[:, :5]},
        "attention_mask: expected the shape",
    ),
    "a mask with three axes": (
        {"input_ids": IDS, "attention_mask": PADDING[None]},
        "attention_mask: expected the shape",
    ),
    "four axes of whole numbers": ({"input_ids": IDS, "attention_mask": PADDING[:, None, None]}, "boolean or"),
}


@pytest.mark.parametrize("case", list(BAD_INPUT))
def test_input_of_the_wrong_kind_is_refused(case):
    arguments, told = BAD_INPUT[case]
    with pytest.raises(RecoveryError, match=told):
        recover(bert())(**arguments)


def test_unknown_options_are_refused_by_name():
    with pytest.raises(TypeError, match="output_attentions"):
        recover(bert())(IDS, output_attentions=True)
