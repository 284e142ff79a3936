"""Weights under a prefix (`cp.ckpt`), and the file `checkpoint` that names the newest, as TensorFlow keeps them.

`cp.ckpt` becomes `cp.ckpt.weights.h5`, in Keras 3's own format, and `cp.ckpt.index`, which says so: programs look for
that name to see whether there is a checkpoint.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from keras.src.saving import saving_api

from lockstep._types import Model
from lockstep.checkpoint import _of_tensorflow
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._saves.optimizer_state import make_ready, not_to_load
from lockstep.compat.tensorflow.keras._saves.whole_file import whole_file
from lockstep.errors import DataNotFoundError, InputError, UnsupportedError

_WEIGHTS = ".weights.h5"
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
    saving_api.load_weights(model, str(weights), objects_to_skip=not_to_load(model, weights), **options)


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
    prefix = os.path.join(os.fspath(directory), _names(state)[0])
    return prefix if _weights(Path(prefix)).exists() else None


def _make_newest(target: Path) -> None:
    """Writes TensorFlow's text format: the newest, then all from the oldest to the newest."""
    state = target.parent / "checkpoint"
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
    found = re.findall(r'^\s*(model_checkpoint_path|all_model_checkpoint_paths):\s*"((?:[^"\\]|\\.)*)"\s*$', text, re.M)
    newest = [_unescape(name) for key, name in found if key == "model_checkpoint_path"]
    if len(newest) != 1:
        raise InputError(
            f"{state} must name one newest checkpoint (model_checkpoint_path); it names {len(newest)}. Remove the "
            "file, or name the checkpoint yourself."
        )
    return newest + [_unescape(name) for key, name in found if key != "model_checkpoint_path"]


def _escape(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


def _unescape(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


def _weights(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + _WEIGHTS)


def _index(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".index")
