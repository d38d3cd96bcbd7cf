"""torch's encoder layers and stacks: equal in every bit, at any option; refused by name where something isn't known."""

import math

import pytest
import torch
import torch.nn.functional as F
from networks import BATCH, FEATURES, HEADS, TOKENS, draw, layer, normal, stack
from torch import nn
from torch.nn.utils import parametrizations

from ctlib import certify, recover
from ctlib.recovery import RecoveryError
from ctlib.splitting import nodes

DTYPES = [torch.float64, torch.float32]
INF = math.inf


@pytest.fixture(autouse=True)
def general_path():
    """torch's layer by its parts: the reference; its fused path rounds otherwise."""
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


def text(dtype=torch.float64, batch_first=True):
    u = normal(BATCH, TOKENS, FEATURES).to(dtype)
    return u if batch_first else u.transpose(0, 1).contiguous()


def masks(dtype):
    """Every kind of mask that torch takes, by name, as arguments of a stack."""
    causal = nn.Transformer.generate_square_subsequent_mask(TOKENS, dtype=dtype)
    some = normal(TOKENS, TOKENS, seed=5) < -0.5
    some.fill_diagonal_(False)
    padding = torch.zeros(BATCH, TOKENS, dtype=torch.bool)
    padding[1, 4:] = True
    padding_numbers = torch.zeros(BATCH, TOKENS, dtype=dtype).masked_fill(padding, -INF)
    row = torch.zeros(TOKENS, TOKENS, dtype=torch.bool)
    row[2] = True
    return {
        "none": {},
        "boolean": {"mask": some},
        "numbers": {"mask": normal(TOKENS, TOKENS, seed=6).to(dtype)},
        "numbers per head": {"mask": normal(BATCH * HEADS, TOKENS, TOKENS, seed=7).to(dtype)},
        "boolean per head": {"mask": some.expand(BATCH * HEADS, -1, -1)},
        "causal, detected": {"mask": causal},
        "causal, boolean": {"mask": causal.isinf()},
        "causal, as a hint": {"mask": causal, "is_causal": True},
        "padding": {"src_key_padding_mask": padding},
        "padding in numbers": {"src_key_padding_mask": padding_numbers},
        "causal and padding": {"mask": causal, "src_key_padding_mask": padding_numbers, "is_causal": True},
        "boolean and padding": {"mask": some, "src_key_padding_mask": padding},
        "an empty row": {"mask": row},
    }


@torch.no_grad()
def assert_same_bits(model, *args, **kwargs):
    ours, theirs = recover(model)(*args, **kwargs), model(*args, **kwargs)
    assert ours.shape == theirs.shape
    assert torch.equal(ours, theirs), certify(model, *args, **kwargs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", list(masks(torch.float64)))
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_every_mask(dtype, kind, norm_first, batch_first):
    model = stack(2, dtype, norm_first=norm_first, batch_first=batch_first)
    assert_same_bits(model, text(dtype, batch_first), **masks(dtype)[kind])


ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "torch.relu": torch.relu,
    "silu": F.silu,
    "ReLU": nn.ReLU(),
    "GELU tanh": nn.GELU("tanh"),
    "SiLU": nn.SiLU(),
    "Tanh": nn.Tanh(),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", list(ACTIVATIONS))
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_every_known_activation(dtype, name, norm_first, batch_first):
    options = {"activation": ACTIVATIONS[name], "norm_first": norm_first, "batch_first": batch_first}
    assert_same_bits(layer(dtype, **options), text(dtype, batch_first))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "options", [{"bias": False}, {"layer_norm_eps": 1e-12}, {"layer_norm_eps": 0.1}, {"dropout": 0.0}]
)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(
    "final", [None, nn.LayerNorm(FEATURES), nn.LayerNorm(FEATURES, elementwise_affine=False)], ids=str
)
def test_every_option(dtype, options, norm_first, final):
    assert_same_bits(stack(2, dtype, final, norm_first=norm_first, **options), text(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("features", "heads", "hidden", "tokens"),
    [(5, 1, 3, 1), (6, 6, 17, 9), (13, 1, 7, 5), (39, 3, 7, 33), (99, 3, 1, 2), (66, 2, 1, 257), (64, 4, 256, 33)],
)
@pytest.mark.parametrize("batch_first", [False, True])
def test_odd_sizes(dtype, features, heads, hidden, tokens, batch_first):
    """At widths that are no multiple of 4, rows start at odd places in memory, where kernels sum in another order."""
    model = draw(nn.TransformerEncoderLayer(features, heads, hidden, batch_first=batch_first), dtype)
    u = normal(3, tokens, features).to(dtype)
    assert_same_bits(model, u if batch_first else u.transpose(0, 1).contiguous())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_twelve_layers(dtype, norm_first, batch_first):
    model = stack(
        12, dtype, nn.LayerNorm(FEATURES) if norm_first else None, norm_first=norm_first, batch_first=batch_first
    )
    assert_same_bits(model, text(dtype, batch_first))


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_text_without_a_batch(batch_first):
    model, u = layer(batch_first=batch_first), normal(TOKENS, FEATURES)
    padding = torch.zeros(TOKENS, dtype=torch.bool)
    padding[5:] = True
    assert_same_bits(model, u)
    assert_same_bits(model, u, src_key_padding_mask=padding)
    assert_same_bits(model, u, src_mask=normal(HEADS, TOKENS, TOKENS))


@pytest.mark.parametrize("batch_first", [False, True])
def test_values_in_another_order_of_memory(batch_first):
    assert_same_bits(layer(batch_first=batch_first), text(batch_first=not batch_first).transpose(0, 1))


def test_an_empty_measure_gives_what_torch_gives():
    padding = torch.zeros(BATCH, TOKENS, dtype=torch.bool)
    padding[1] = True
    assert_same_bits(layer(), text(), src_key_padding_mask=padding)
    assert recover(layer())(text(), src_key_padding_mask=padding).isfinite().all()


def test_torchs_fused_path_agrees_to_rounding():
    model, u = stack(3), text()
    torch.backends.mha.set_fastpath_enabled(True)
    with torch.no_grad():
        assert (recover(model)(u) - model(u)).norm() <= 2e-15 * model(u).norm()


def test_the_network_is_shared_not_copied():
    model, u = layer(), text()
    recovered = recover(model)
    before = {name: p.data_ptr() for name, p in model.state_dict().items()}
    with torch.no_grad():
        model.linear1.weight.mul_(2.0)
        assert torch.equal(recovered(u), model(u))
        model.float()
        assert torch.equal(recovered(u.float()), model(u.float()))
    assert before.keys() == model.state_dict().keys()


def test_every_tensor_of_the_scheme_is_a_parameter_of_the_network():
    model = stack(2, norm=nn.LayerNorm(FEATURES))
    keys = list(model.state_dict())
    scheme = recover(model).scheme
    held = {id(t) for node in nodes(scheme) for t in vars(node).values() if isinstance(t, torch.Tensor)}
    assert held == {id(p) for p in model.parameters()}
    assert list(model.state_dict()) == keys


@pytest.mark.parametrize("kind", ["none", "an empty row", "causal, detected", "padding"])
def test_gradients_are_the_networks(kind):
    model, u = stack(2), text()
    gradients = []
    for run in (model, recover(model)):
        model.zero_grad()
        run(u, **masks(torch.float64)[kind]).square().mean(-1)[0, 0].backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name, p in gradients[0].items():
        size = max(p.norm(), 1e-3 * gradients[0]["layers.0.linear1.weight"].norm())  # the key bias has none of its own
        assert (p - gradients[1][name]).norm() <= 1e-13 * size, name


def test_training_without_dropout_is_welcome():
    model = layer(dropout=0.0).train()
    assert torch.equal(recover(model)(text()), model(text()))


@pytest.mark.parametrize("part", ["self_attn", "dropout", "dropout1", "dropout2"])
def test_dropout_is_refused_by_name_when_it_acts(part):
    model = layer(dropout=0.0)
    if part == "self_attn":
        model.self_attn.dropout = 0.1
    else:
        getattr(model, part).p = 0.1
    recovered = recover(model)
    recovered(text())
    model.train()
    with pytest.raises(RecoveryError, match=rf"{part} drops out"):
        recovered(text())
    with pytest.raises(RecoveryError, match=rf"{part} drops out"):
        certify(model, text())


class Louder(nn.TransformerEncoderLayer):
    def forward(self, *args, **kwargs):
        return 2 * super().forward(*args, **kwargs)


def hooked(kind):
    model = layer()
    getattr(model.norm1, f"register_{kind}")(lambda *_: None)
    return model


def replaced_forward():
    model = layer()
    model.linear2.forward = lambda u: u
    return model


def with_parts(path, part):
    model = stack(2)
    owner, _, name = path.rpartition(".")
    setattr(model.get_submodule(owner), name, part)
    return model


REFUSED = {
    "a subclass": (lambda: Louder(FEATURES, HEADS), "Louder"),
    "another module": (lambda: nn.Linear(3, 3), r"Linear.*known are"),
    "a function as activation": (lambda: layer(activation=torch.sin), r"TransformerEncoderLayer.activation.*sin"),
    "a module as activation": (lambda: layer(activation=nn.Mish()), r"TransformerEncoderLayer.activation.*Mish"),
    "a hook": (lambda: hooked("forward_hook"), r"norm1 has hooks"),
    "a hook before": (lambda: hooked("forward_pre_hook"), r"norm1 has hooks"),
    "a hook on gradients": (lambda: hooked("full_backward_hook"), r"norm1 has hooks"),
    "a replaced forward": (replaced_forward, r"linear2.forward was replaced"),
    "a parametrised weight": (
        lambda: with_parts("layers.1.linear1", parametrizations.weight_norm(nn.Linear(FEATURES, 40))),
        r"layers.1.linear1 is a",
    ),
    "keys with a bias row": (
        lambda: with_parts(
            "layers.0.self_attn", nn.MultiheadAttention(FEATURES, HEADS, add_bias_kv=True, batch_first=True)
        ),
        r"MultiheadAttention.bias_k",
    ),
    "keys of another width": (
        lambda: with_parts("layers.0.self_attn", nn.MultiheadAttention(FEATURES, HEADS, kdim=5, batch_first=True)),
        r"MultiheadAttention.kdim",
    ),
    "a norm over two axes": (
        lambda: with_parts("layers.1.norm2", nn.LayerNorm((TOKENS, FEATURES))),
        r"LayerNorm.normalized_shape",
    ),
    "another norm": (lambda: with_parts("norm", nn.RMSNorm(FEATURES)), r"norm is a .*RMSNorm"),
    "layers that disagree": (
        lambda: with_parts("layers.1", layer(batch_first=False)),
        r"MultiheadAttention.batch_first",
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_is_not_known_is_refused_by_name(case):
    make, named = REFUSED[case]
    with pytest.raises(RecoveryError, match=named):
        recover(make())


BAD_INPUT = {
    "a mask of another shape": ({"mask": torch.zeros(3, 3)}, r"mask: expected the shape"),
    "a mask of whole numbers": ({"mask": torch.zeros(TOKENS, TOKENS, dtype=torch.int64)}, r"mask: expected booleans"),
    "a mask of another precision": (
        {"mask": torch.zeros(TOKENS, TOKENS, dtype=torch.float32)},
        r"mask: expected booleans",
    ),
    "a padding of another shape": (
        {"src_key_padding_mask": torch.zeros(TOKENS, dtype=torch.bool)},
        r"src_key_padding_mask",
    ),
    "a hint without a mask": ({"is_causal": True}, r"give the mask"),
}


@pytest.mark.parametrize("case", list(BAD_INPUT))
def test_input_of_the_wrong_kind_is_refused(case):
    arguments, told = BAD_INPUT[case]
    with pytest.raises(RecoveryError, match=told):
        recover(stack(1))(text(), **arguments)


def test_another_width_is_refused():
    with pytest.raises(RecoveryError, match="src: expected"):
        recover(layer())(normal(2, TOKENS, FEATURES + 1))


def test_arguments_that_the_model_does_not_take_are_refused():
    with pytest.raises(TypeError, match="positional arguments"):
        recover(layer())(text(), None, None, False, None)
    with pytest.raises(TypeError, match="src_masks"):
        recover(layer())(text(), src_masks=None)


def test_dropout_of_one_part_in_training_is_seen():
    model = layer(dropout=0.5)
    recovered = recover(model)
    model.dropout1.train()
    with pytest.raises(RecoveryError, match="dropout1 drops out"):
        recovered(text())


def test_an_empty_stack_is_refused():
    model = stack(1)
    model.layers = nn.ModuleList()
    with pytest.raises(RecoveryError, match=r"TransformerEncoder\.layers"):
        recover(model)
