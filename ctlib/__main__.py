"""The command line: `python -m ctlib certify NAME`, `python -m ctlib equation NAME`.

NAME is a trained network that a package carries, or a directory that `save_pretrained` wrote.
"""

from __future__ import annotations

import json
import math

import click
import torch

from ctlib.recovery import certify, recover
from ctlib.recovery.parts import RecoveryError
from ctlib.splitting import Sequential
from ctlib.trained import Reader, Trained, Untold, Viewer, load

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}


class BadInput(click.ClickException):
    """Told in one line, with exit status 2."""

    exit_code = 2


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main():
    """A Transformer as a splitting scheme: the equation of a trained network, and the proof that it is exact."""


@main.command("certify")
@click.argument("name", metavar="NAME|DIRECTORY")
@click.option("--text", "texts", multiple=True, help="A text to read; may be given several times.")
@click.option("--image", "images", multiple=True, help="A picture to look at; may be given several times.")
@click.option("--dtype", type=click.Choice(list(DTYPES)), default="float32", show_default=True, help="The arithmetic.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def certify_command(name: str, texts: tuple[str, ...], images: tuple[str, ...], dtype: str, as_json: bool):
    """Run a network and its splitting scheme side by side, and compare every state.

    The exit status is 0 only if all errors are within their bounds, 1 if one is not, and 2 for bad input.
    """
    trained = _load(name, DTYPES[dtype])
    try:
        certificate = certify(trained.model, **_arguments(trained, list(texts), list(images)))
    except (RecoveryError, ValueError) as problem:
        raise BadInput(str(problem)) from None
    click.echo(json.dumps(_finite(certificate.as_dict()), indent=2) if as_json else str(certificate))
    if isinstance(trained, Untold) and not as_json:
        click.echo(f"Its input was random: {name} has no tokenizer or pictures of its own.")
    raise SystemExit(0 if certificate.ok else 1)


@main.command("equation")
@click.argument("name", metavar="NAME|DIRECTORY")
@click.option("--latex", is_flag=True, help="The evolution equation, in LaTeX.")
def equation_command(name: str, latex: bool):
    """Write a network as an equation: the tree of its substeps, or with --latex the equation itself."""
    try:
        recovered = recover(_load(name, torch.float32).model)
    except RecoveryError as problem:
        raise BadInput(str(problem)) from None
    click.echo(recovered.latex() if latex else _folded(recovered.scheme))


def _load(name: str, dtype: torch.dtype) -> Trained:
    try:
        return load(name, dtype)
    except (ValueError, ModuleNotFoundError) as problem:
        raise BadInput(str(problem)) from None


def _arguments(trained: Trained, texts: list[str], images: list[str]) -> dict[str, torch.Tensor]:
    """What the model is called with: what was given, or a sample."""
    if texts and not isinstance(trained, Reader):
        raise ValueError(f"--text: {trained.name} doesn't read texts, or came without a tokenizer.json.")
    if images and not isinstance(trained, Viewer):
        raise ValueError(f"--image: {trained.name} doesn't look at pictures, or came without a way to prepare them.")
    return trained.inputs(texts or images) if texts or images else trained.sample()


def _folded(scheme: Sequential) -> str:
    """The tree of a scheme, with time steps that print alike told once."""
    blocks: list[list] = []  # text without its label, first and last label
    for part in scheme.maps:
        body = str(Sequential(*part.maps)).splitlines()[1:]
        if blocks and blocks[-1][0] == body:
            blocks[-1][2] = part.label
        else:
            blocks.append([body, part.label, part.label])
    lines = []
    for body, first, last in blocks:
        lines.append(f"{first}:" if first == last else f"time steps {first} to {last}, each:")
        lines += body
    return "\n".join(lines)


def _finite(value):
    """The same data with null in place of numbers that JSON can't hold."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    main(prog_name="python -m ctlib")
