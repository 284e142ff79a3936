"""Conversions of TensorFlow's checkpoints: to lockstep's, to weights of Keras, to saved models of Keras."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lockstep import checkpoint
from lockstep.checkpoint.internal import write
from lockstep.errors import ArgumentError

# The middle of the warning of `restore`, before the names.
_LEFT_OVER = " has values that nothing here takes: "
_WEIGHTS, _MODEL, _FILE = ".weights.h5", ".keras", ".npz"
# Where a SavedModel has its variables.
_SAVED_MODEL = os.path.join("variables", "variables")
_FORMS = (
    "a file of lockstep (model.ckpt-120.npz), a new directory for an Estimator, weights of Keras (name.weights.h5), or "
    "a model of Keras (name.keras)"
)


def prefix_of(source: Path) -> str:
    """Returns the name of the checkpoint that a path means: itself, the newest of a directory, or a SavedModel's.

    Raises:
        ArgumentError: If there is none.
        CheckpointError: If it cannot be read.
    """
    if not source.is_dir():
        return str(source).removesuffix(".index")
    if (source / f"{_SAVED_MODEL}.index").is_file():
        return str(source / _SAVED_MODEL)
    newest = checkpoint.latest_checkpoint(source)
    if newest is None:
        raise ArgumentError(
            f"A checkpoint is a name such as model.ckpt-120, or a directory with some. Received: {str(source)!r}, "
            "which has none."
        )
    return newest


def list_checkpoint(prefix: str) -> None:
    """Prints the names, dtypes and shapes of a checkpoint's variables."""
    reader = checkpoint.load_checkpoint(prefix)
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    rows = [(name, _dtype_name(dtypes[name]), str(shapes[name])) for name in sorted(shapes)]
    console = Console()
    if not console.is_terminal:
        for row in rows:
            print(*row)
        return
    table = Table("Variable", "dtype", "shape", title=prefix)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def import_checkpoint(prefix: str, output: Path, model: str | None) -> list[str]:
    """Writes a checkpoint of TensorFlow in another form, and checks it by reading it again.

    Args:
        prefix: Its name.
        output: What to write; its ending says the form.
        model: Of weights and models of Keras: where the model is, see `load_model`.

    Returns:
        Lines that say what was written.

    Raises:
        ArgumentError: If the output has no form, or a model is missing or given in vain.
        CheckpointError: If the checkpoint cannot be read, or a file not be written.
    """
    if output.name.endswith((_WEIGHTS, _MODEL)):
        if model is None:
            raise ArgumentError(
                f"{output.name} holds the weights of a model, which --model names: a file that Keras has saved, or a "
                "function of your program. Example: --model program.py:make_model"
            )
        return _to_keras(prefix, output, model)
    if model is not None or output.suffix not in ("", _FILE):
        raise ArgumentError(f"A checkpoint becomes {_FORMS}. Received: {output} with model {model}.")
    return _to_lockstep(prefix, output)


def _to_lockstep(prefix: str, output: Path) -> list[str]:
    loaded = checkpoint.load(prefix)
    if loaded.full_names is None:
        raise ArgumentError(f"{prefix} is a checkpoint of lockstep already. Pass one of TensorFlow.")
    # The names that programs know: those of objects are paths through the program that saved them.
    counts = Counter(loaded.full_names.values())
    names = {key: name if counts[name] == 1 else key for key, name in loaded.full_names.items()}
    arrays = {names[key]: value for key, value in loaded.arrays.items()}
    extra: dict[str, Any] = {checkpoint.Checkpoint.TENSORFLOW: prefix}
    if output.suffix == _FILE:
        output.parent.mkdir(parents=True, exist_ok=True)
        write(str(output), loaded.step, arrays, extra)
        written = str(output)
    else:
        if output.exists() and any(output.iterdir()):
            raise ArgumentError(f"{output} is not empty. Give a new directory.")
        with checkpoint.CheckpointStore(output) as store:
            written = store.save(loaded.step, arrays, extra)
    # Read back: a disk may have written something else, and the source may be deleted next.
    again = checkpoint.load(written)
    different = [n for n, v in arrays.items() if again.arrays[n].tobytes() != v.tobytes()]
    assert not different, f"{written} differs in {different}"
    return [f"{written}: step {loaded.step}, {len(arrays)} variables.", *_left_out(prefix, set(loaded.arrays))]


def _left_out(prefix: str, kept: set[str]) -> list[str]:
    text = sorted(set(checkpoint.load_checkpoint(prefix).get_variable_to_shape_map()) - kept)
    return [f"Text is left out: {', '.join(text)}."] if text else []


def _to_keras(prefix: str, output: Path, where: str) -> list[str]:
    # Imported here: TensorFlow's names take seconds, and other forms need none of them.
    import lockstep.compat.tensorflow as tf
    from lockstep._migrate._models import load_model

    model = load_model(where)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Everything is found and compared before anything is assigned; what is left over is named in a warning.
        tf.train.Checkpoint(model).restore(prefix)
    left: list[str] = []
    for warning in caught:
        _, found, names = str(warning.message).partition(_LEFT_OVER)
        if found:
            left.append(f"Left out, for which {model.name} has no variables: {names}")
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    output.parent.mkdir(parents=True, exist_ok=True)
    if output.name.endswith(_WEIGHTS):
        model.save_weights(str(output))
    else:
        model.save(str(output))
    return [f"{output}: {len(model.weights)} variables of {model.name}.", *left]


def _dtype_name(dtype: Any) -> str:
    return "text" if dtype.kind == "O" else dtype.name
