"""`transformers.BertModel`, the encoder of Devlin et al., and `transformers.AlbertModel`, the same with shared layers.

Both are post-norm, with a normalised sum of embeddings to start.  Where BERT has a θ of its own for every layer, ALBERT
has one for all of them: its equation is autonomous.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ctlib.field import Field, Grid
from ctlib.operators import Attention
from ctlib.recovery.huggingface import (
    TORCH_PARTS,
    embedded,
    last_hidden_state,
    log_weight,
    parts,
    require_positions,
    require_sdpa,
    require_whole,
    values,
)
from ctlib.recovery.parts import activation, kernel, layer_norm, require, require_known
from ctlib.recovery.recovered import Recovered
from ctlib.splitting import Sequential
from ctlib.substeps import Project, Replace, Witness
from ctlib.transformer import FeedForward, post_norm_step

_BERT, _ALBERT = "bert.modeling_bert", "albert.modeling_albert"
(BERT,) = parts(_BERT, "BertModel")
(ALBERT,) = parts(_ALBERT, "AlbertModel")
BERT_PARTS = TORCH_PARTS | parts(
    _BERT,
    "BertModel BertEmbeddings BertEncoder BertLayer BertAttention BertSelfAttention BertSelfOutput BertIntermediate "
    "BertOutput BertPooler",
)
ALBERT_PARTS = TORCH_PARTS | parts(
    _ALBERT, "AlbertModel AlbertEmbeddings AlbertTransformer AlbertLayerGroup AlbertLayer AlbertAttention"
)


def bert_step(layer: nn.Module, n: int) -> Sequential:
    """Layer n of BERT as time step n."""
    path = f"encoder.layer.{n}."
    a, output = layer.attention.self, layer.attention.output
    attention = Attention(
        kernel(a.query, "W^Q"),
        kernel(a.key, "W^K"),
        kernel(a.value, "W^V"),
        kernel(output.dense, "W^O"),
        a.num_attention_heads,
        scale=a.scaling,  # d_k ** -0.5, which is not always the number nearest to 1/√d_k
    )
    network = FeedForward(
        kernel(layer.intermediate.dense, "W_1"),
        activation(layer.intermediate, "intermediate_act_fn"),
        kernel(layer.output.dense, "W_2"),
    )
    witnesses = (
        Witness(path + "attention.output.LayerNorm", "in"),
        Witness(path + "attention.output.LayerNorm", "out"),
        Witness(path + "intermediate", "out"),
        Witness(path + "output.dense", "out"),
        Witness(path + "output.LayerNorm", "in"),
        Witness(path + "output.LayerNorm", "out"),
    )
    first, second = layer_norm(output.LayerNorm), layer_norm(layer.output.LayerNorm)
    return post_norm_step(attention, first, network, second, witnesses, label=n)


def albert_step(layer: nn.Module, path: str, n: int, turn: int) -> Sequential:
    """A layer of ALBERT as time step n; it is the layer's `turn`-th."""
    a = layer.attention
    attention = Attention(
        kernel(a.query, "W^Q"),
        kernel(a.key, "W^K"),
        kernel(a.value, "W^V"),
        kernel(a.dense, "W^O"),
        a.num_attention_heads,
        scale=a.scaling,
    )
    network = FeedForward(kernel(layer.ffn, "W_1"), activation(layer, "activation"), kernel(layer.ffn_output, "W_2"))
    modules = ("attention.LayerNorm",) * 2 + ("ffn_output",) * 2 + ("full_layer_layer_norm",) * 2
    witnesses = tuple(Witness(path + module, side, turn=turn) for module, side in zip(modules, ("in", "out") * 3))
    return post_norm_step(
        attention, layer_norm(a.LayerNorm), network, layer_norm(layer.full_layer_layer_norm), witnesses, label=n
    )


def recover_bert(model: nn.Module) -> Recovered:
    """BertModel as an encoder; the scheme stands for its `last_hidden_state`."""
    require_known(model, BERT_PARTS)
    require(
        not model.config.is_decoder,
        model,
        "config.is_decoder",
        "only the encoder is known: no cache, no cross-attention.",
    )
    steps = [bert_step(layer, n) for n, layer in enumerate(model.encoder.layer)]
    return _recover(model, Sequential(_start(model), label="start"), steps)


def recover_albert(model: nn.Module) -> Recovered:
    """AlbertModel; the scheme stands for its `last_hidden_state`."""
    require_known(model, ALBERT_PARTS)
    encoder, config = model.encoder, model.config
    steps = []
    turns: dict[str, int] = {}
    for i in range(config.num_hidden_layers):
        group = int(i / (config.num_hidden_layers / config.num_hidden_groups))
        for j, layer in enumerate(encoder.albert_layer_groups[group].albert_layers):
            path = f"encoder.albert_layer_groups.{group}.albert_layers.{j}."
            turns[path] = turns.get(path, -1) + 1
            steps.append(albert_step(layer, path, len(steps), turns[path]))
    into = Witness("encoder.embedding_hidden_mapping_in", "out")
    start = (_start(model), Replace(kernel(encoder.embedding_hidden_mapping_in, "W"), witness=into))
    return _recover(model, Sequential(*start, label="start"), steps)


def _start(model: nn.Module) -> Project:
    return Project(layer_norm(model.embeddings.LayerNorm), witness=Witness("embeddings.LayerNorm", "out"))


def _recover(model: nn.Module, start: Sequential, steps: list[Sequential]) -> Recovered:
    require_sdpa(model)
    require_whole(model)
    config, embeddings = model.config, model.embeddings

    def read(
        input_ids: Int[Tensor, "batch nodes"] | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch nodes"] | None = None,
        position_ids: Int[Tensor, "#batch nodes"] | None = None,
        inputs_embeds: Float[Tensor, "batch nodes features"] | None = None,
    ) -> Field:
        words = embedded(embeddings.word_embeddings, input_ids, inputs_embeds)
        batch, n, _ = words.shape
        if position_ids is None:
            require_positions(n, config.max_position_embeddings)
            position_ids = embeddings.position_ids[:, :n]
        if token_type_ids is None:
            token_type_ids = torch.zeros((batch, n), dtype=torch.long, device=words.device)
        f = words + embeddings.token_type_embeddings(token_type_ids) + embeddings.position_embeddings(position_ids)
        return Field(f, Grid((n,), log_weight(attention_mask, batch, n, f.dtype)))

    return Recovered(model, Sequential(start, *steps), read, values, last_hidden_state(model))
