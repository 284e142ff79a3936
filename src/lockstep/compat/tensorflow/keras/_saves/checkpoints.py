"""Weights under a prefix (`cp.ckpt`), and the file `checkpoint` that names the newest, as TensorFlow keeps them.

`cp.ckpt` becomes `cp.ckpt.weights.h5`, in Keras 3's own format, and `cp.ckpt.index`, which says so: programs look for
that name to see whether there is a checkpoint.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import h5py
from keras.src.saving import saving_api

from lockstep._types import Model
from lockstep.checkpoint.internal import of_tensorflow as _of_tensorflow
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._saves.directory import whole_file
from lockstep.errors import DataNotFoundError, InputError, UnsupportedError

_WEIGHTS = ".weights.h5"
# Programs look whether the index exists; this says what it is to whoever opens it.
_FORMAT = {"format": "keras-weights-h5", "written_by": "lockstep"}


class Restored:
    """Status object that `load_weights` of a checkpoint returns: everything was restored.

    Source: the status object of `tf.train.Checkpoint.restore`.
    """

    def assert_consumed(self) -> Restored:
        """Does nothing: every weight was restored."""
        return self

    def assert_existing_objects_matched(self) -> Restored:
        """Does nothing: every weight was restored."""
        return self

    def assert_nontrivial_match(self) -> Restored:
        """Does nothing: every weight was restored."""
        return self

    def expect_partial(self) -> Restored:
        """Does nothing: every weight was restored."""
        return self


def write_checkpoint(model: Model, prefix: str | os.PathLike[str]) -> None:
    """Saves the weights of `model`, and its optimizer's state, under `prefix`; it is now the newest there.

    Raises:
        CheckpointError: If the directory holds checkpoints of TensorFlow.
    """
    target = Path(os.path.abspath(prefix))
    _of_tensorflow.refuse_in(target.parent)
    with whole_file(_weights(target), _WEIGHTS) as temporary:
        saving_api.save_weights(model, str(temporary))
    # After the weights: a program that sees the index finds them whole.
    with whole_file(_index(target)) as temporary:
        temporary.write_text(json.dumps(_FORMAT))
    # Last, for the same reason: the file names only what is there.
    _make_newest(target)


def read_checkpoint(model: Model, prefix: str | os.PathLike[str], **options: Argument) -> Restored:
    """Loads what `write_checkpoint` saved under `prefix`.

    Raises:
        DataNotFoundError: If nothing lies there.
        UnsupportedError: If it is one of TensorFlow's own.
    """
    target = Path(os.path.abspath(prefix))
    if not _weights(target).exists():
        raise _unreadable(target)
    load_into(model, _weights(target), **options)
    return Restored()


def load_into(model: Model, weights: Path, **options: Argument) -> None:
    """Loads weights, and the optimizer's state if it is of this kind of optimizer; Keras 2 ignored another's too."""
    make_ready(model, weights)
    saving_api.load_weights(model, str(weights), objects_to_skip=_find_foreign_optimizer(model, weights), **options)


def _unreadable(target: Path) -> Exception:
    if _index(target).exists():
        return UnsupportedError(
            f"{target} is a checkpoint in TensorFlow's own format, which only TensorFlow reads. Load it there once, "
            "and save the weights with model.save_weights('name.h5'); that file can be loaded here."
        )
    return DataNotFoundError(
        f"No weights were saved at {target}: neither {_weights(target).name} nor an index is there."
    )


def latest_checkpoint(directory: str | os.PathLike[str], latest_filename: str | None = None) -> str | None:
    """Finds the newest weights that were saved under a prefix in `directory`.

    Args:
        directory: Where the checkpoints lie.
        latest_filename: The file that names the newest. Default: `checkpoint`.

    Returns:
        The prefix, for `model.load_weights`, or None if there is none. Source: `tf.train.latest_checkpoint`.

    Raises:
        CheckpointError: If the directory holds checkpoints of TensorFlow.
        InputError: If the file that names the newest is damaged.
    """
    _of_tensorflow.refuse_in(directory)
    state = Path(directory) / (latest_filename or "checkpoint")
    if not state.exists():
        return None
    # TensorFlow writes names relative to the directory, so that it can be moved.
    prefix = os.path.join(os.fspath(directory), _names(state)[0])
    # Retention by another program may have removed the file.
    return prefix if _weights(Path(prefix)).exists() else None


def _make_newest(target: Path) -> None:
    """Writes TensorFlow's text format: the newest, then all from the oldest to the newest."""
    state = target.parent / "checkpoint"
    # A prefix that is saved again becomes the newest, and is listed once.
    before = [name for name in (_names(state)[1:] if state.exists() else []) if name != target.name]
    kept = [name for name in before if _weights(target.parent / name).exists()]
    lines = [f'model_checkpoint_path: "{_escape(target.name)}"']
    lines += [f'all_model_checkpoint_paths: "{_escape(name)}"' for name in [*kept, target.name]]
    with whole_file(state) as temporary:
        temporary.write_text("\n".join(lines) + "\n")


def _names(state: Path) -> list[str]:
    """Returns the newest, then all that the file names."""
    try:
        text = state.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{state} cannot be read ({error}). Remove it, or name the checkpoint yourself.") from error
    entries = re.findall(
        r'^\s*(model_checkpoint_path|all_model_checkpoint_paths):\s*"((?:[^"\\]|\\.)*)"\s*$', text, re.M
    )
    newest = [_unescape(name) for key, name in entries if key == "model_checkpoint_path"]
    if len(newest) != 1:
        raise InputError(
            f"{state} must name one newest checkpoint (model_checkpoint_path); it names {len(newest)}. Remove the "
            "file, or name the checkpoint yourself."
        )
    return newest + [_unescape(name) for key, name in entries if key != "model_checkpoint_path"]


def _escape(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


def _unescape(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


def _weights(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + _WEIGHTS)


def _index(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".index")


def make_ready(model: Model, path: str | os.PathLike[str]) -> None:
    """Creates the variables of the model's optimizer, if the file has values for them.

    Keras creates them in the first step, and refuses to load values for variables that are not there. Keras 2 kept the
    values until then.
    """
    optimizer = _optimizer(model)
    if optimizer is not None and not optimizer.built and model.built and _count_saved_variables(path) > 0:
        optimizer.build(model.trainable_variables)


def _find_foreign_optimizer(model: Model, path: str | os.PathLike[str]) -> list[Any]:
    """Returns the model's optimizer, if the file has the state of another kind of optimizer, or none."""
    optimizer = _optimizer(model)
    if optimizer is None:
        return []
    saved = _count_saved_variables(path)
    # The number is all that a file tells of the kind of optimizer.
    if saved == len(optimizer.variables):
        return []
    if saved:
        warnings.warn(
            f"{path} has {saved} variables of an optimizer, {type(optimizer).__name__} has {len(optimizer.variables)}: "
            "the weights are restored, the optimizer starts anew.",
            stacklevel=2,
        )
    return [optimizer]


def _count_saved_variables(path: str | os.PathLike[str]) -> int:
    """Returns how many variables of an optimizer a file of weights has."""
    with h5py.File(path, "r") as file:
        # Keras 3's place in a .weights.h5.
        group: Any = file.get("optimizer/vars")
        return 0 if group is None else len(group)


def _optimizer(model: Model) -> Any:
    optimizer = getattr(model, "optimizer", None)
    return optimizer if hasattr(optimizer, "variables") else None
