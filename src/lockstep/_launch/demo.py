"""`lockstep demo`: the example of training on MNIST, run from wherever lockstep is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockstep._launch.launcher import launch

# In a checkout a link to examples/mnist.py, in an installed package a copy of it.
PROGRAM = Path(__file__).parent / "programs" / "mnist.py"


def demo(
    workers: Annotated[int, typer.Option(metavar="N", help="Number of worker tasks.")] = 2,
    epochs: Annotated[int, typer.Option(metavar="E", min=1, help="Passes over the training images.")] = 3,
    output_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where the trained model is saved.")] = Path(
        "runs/mnist"
    ),
) -> None:
    """Train a small network on MNIST on several workers of this machine, or on a sample of it without network."""
    arguments = ["--epochs", str(epochs), "--output-dir", str(output_dir)]
    raise typer.Exit(launch([str(PROGRAM), *arguments], workers=workers))
