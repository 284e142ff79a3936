"""Commands of the command line for programs, checkpoints and models of TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def scan(
    path: Annotated[Path, typer.Argument(help="A program, a notebook, or a directory of them.", show_default=False)],
    write: Annotated[bool, typer.Option("--write", help="Change the import lines in the files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which of TensorFlow's names programs use, which of them lockstep has, and what to use for the others.

    The change of import lines is shown; --write makes it, and changes nothing else. The exit code is 1 if a name is not
    there.
    """
    # Imported here, as in the commands below: names are asked of lockstep.compat, which takes seconds to import.
    from lockstep._migrate import _commands

    raise typer.Exit(_commands.scan(path, write, as_json))


def import_checkpoint(
    source: Annotated[
        Path,
        typer.Argument(help="A checkpoint of TensorFlow, a directory of some, or a SavedModel.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Argument(
            help="NAME.npz or a directory (lockstep's), NAME.weights.h5 or NAME.keras. Default: list the variables.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="For Keras: a saved model, or program.py:function.", show_default=False),
    ] = None,
) -> None:
    """Convert a checkpoint of TensorFlow 1 or 2, without TensorFlow.

    Estimators and readers need no conversion: they go on from TensorFlow's files as they are.
    """
    from lockstep._migrate import _commands

    _commands.import_checkpoint(source, output, model)


def export(
    source: Annotated[
        str, typer.Argument(help="An export of lockstep, a saved model, or program.py:function.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Argument(help="A directory (TensorFlow's SavedModel), NAME.onnx or NAME.keras.", show_default=False)
    ],
    safe_mode: Annotated[
        bool,
        typer.Option(help="Refuse an export whose programs reach beyond their own arrays, as linear algebra's do."),
    ] = True,
) -> None:
    """Write a model for TensorFlow Serving, ONNX or Keras, and compare its results with the source's."""
    from lockstep._migrate import _commands

    _commands.export(source, output, safe_mode)
