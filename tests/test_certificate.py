"""Certificates: they see every state, they find a planted fault where it is, and they leave no trace."""

import dataclasses
import json
import math

import pytest
import torch
from networks import FEATURES, TOKENS, bert, layer, normal, stack
from torch import nn

from ctlib import Project, Sequential, certify, recover
from ctlib.sets import MeanVariance
from ctlib.transformer import relaxed

U = normal(2, TOKENS, FEATURES)
IDS = torch.arange(14).view(2, 7)


def with_scheme(recovered, scheme):
    return dataclasses.replace(recovered, scheme=scheme)


def faulty(scheme, factor=10.0):
    """The scheme with another ε in its first projection."""
    attend, project, *rest = scheme.maps
    onto = MeanVariance(project.onto.sigma1, project.onto.sigma2, factor * project.onto.eps)
    return Sequential(attend, Project(onto, witness=project.witness), *rest, label=scheme.label)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("make", "states"),
    [
        (lambda dtype: layer(dtype), 6),
        (lambda dtype: layer(dtype, norm_first=True), 2),
        (lambda dtype: stack(3, dtype), 18),
        (lambda dtype: stack(3, dtype, nn.LayerNorm(FEATURES), norm_first=True), 7),
        (lambda dtype: stack(3, dtype, batch_first=False), 18),
    ],
    ids=["post-norm", "pre-norm", "stack", "pre-norm stack", "tokens first"],
)
def test_every_state_is_seen_and_equal(dtype, make, states):
    certificate = certify(make(dtype), U.to(dtype))
    assert certificate.ok
    assert certificate.bit_equal
    assert len(certificate.substeps) == states
    assert certificate.unseen == ()


def test_every_state_of_bert_is_seen_and_equal():
    certificate = certify(bert(), IDS, attention_mask=torch.ones_like(IDS))
    assert certificate.ok
    assert len(certificate.substeps) == 1 + 3 * 6


def test_a_text_without_a_batch_is_certified():
    assert certify(layer(), U[0]).ok
    assert certify(layer(batch_first=False), U[0]).ok


def test_the_papers_form_is_certified():
    recovered = recover(stack(2))
    assert with_scheme(recovered, relaxed(recovered.scheme)).certify(U).ok


def test_a_fault_shows_alone_only_where_it_is():
    recovered = recover(stack(3))
    one, two, three = recovered.scheme.maps
    certificate = with_scheme(recovered, Sequential(one, faulty(two), three)).certify(U)
    assert not certificate.ok
    assert [s.name for s in certificate.substeps if s.alone > certificate.bound] == ["1+2/6"]
    late = [s.name for s in certificate.substeps if s.relative_error > certificate.bound]
    assert late == [s.name for s in certificate.substeps][7:]
    assert "NOT" in str(certificate)


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (0, 1, 3, 2), (2, 3, 0, 1)], ids=str)
def test_another_order_is_not_certified(order):
    recovered = recover(layer())
    scheme = Sequential(*(recovered.scheme.maps[i] for i in order))
    assert not with_scheme(recovered, scheme).certify(U).ok


def test_a_state_that_is_no_number_is_not_certified():
    recovered = recover(layer())
    model = recovered.model
    with torch.no_grad():
        model.linear2.bias[0] = math.nan
    assert not recovered.certify(U).ok


def test_a_certificate_leaves_no_trace():
    model = stack(2)
    enabled = torch.backends.mha.get_fastpath_enabled()
    certify(model, U)
    assert torch.backends.mha.get_fastpath_enabled() == enabled
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_an_error_leaves_no_trace_either():
    def fail(*args):
        raise RuntimeError("the network failed")

    model = stack(2)
    with pytest.raises(RuntimeError, match="the network failed"):
        dataclasses.replace(recover(model), run=fail).certify(U)
    assert torch.backends.mha.get_fastpath_enabled()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_the_bound_is_eight_machine_epsilon():
    for dtype in (torch.float64, torch.float32):
        assert certify(layer(dtype), U.to(dtype)).bound == 8 * torch.finfo(dtype).eps


def test_a_certificate_is_plain_data():
    data = json.loads(json.dumps(certify(layer(), U).as_dict()))
    assert data["model"] == "TransformerEncoderLayer"
    assert data["dtype"] == "float64"
    assert data["ok"] is True
    assert set(data["end_to_end"]) >= {"relative_error", "bound"}
    assert all(set(s) >= {"name", "relative_error", "bound"} for s in data["substeps"])


@pytest.mark.parametrize("batch_first", [False, True])
def test_as_many_texts_as_tokens(batch_first):
    """A square table shows whether the axes of the network's states were told apart."""
    assert certify(layer(batch_first=batch_first), normal(TOKENS, TOKENS, FEATURES)).ok


def test_a_layer_that_acts_twice_shows_a_state_each_time():
    model = stack(2)
    model.layers[1] = model.layers[0]
    certificate = certify(model, U)
    assert certificate.ok
    assert len(certificate.substeps) == 12
