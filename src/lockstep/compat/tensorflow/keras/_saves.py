"""Models and weights under paths that Keras 3 refuses.

* A whole model in a directory.
* Weights under a prefix (`cp.ckpt`), and the file `checkpoint` that names the newest, as TensorFlow keeps them:
  `cp.ckpt` becomes `cp.ckpt.weights.h5`, in Keras 3's own format, and `cp.ckpt.index`, which says so: programs look for
  that name to see whether there is a checkpoint.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import uuid
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
from keras.src.saving import saving_api, saving_lib

from lockstep._types import Layer, Model
from lockstep.checkpoint.internal import Bundle, is_bundle, naming, remove, take_place
from lockstep.checkpoint.internal import atomic as _atomic
from lockstep.checkpoint.internal import of_tensorflow as _of_tensorflow
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._own_models import note_lambdas
from lockstep.compat.tensorflow.keras._tensorflow_objects import restore_model
from lockstep.errors import ArgumentError, DataNotFoundError, InputError

# In the order in which they may be replaced one by one: the configuration is of no use without the weights.
_PARTS = ("assets", "model.weights.h5", "metadata.json", "config.json")
_WEIGHTS = ".weights.h5"
# Programs look whether the index exists; this says what it is to whoever opens it.
WAITING = "_lockstep_restored_when_built"
_FORMAT = {"format": "keras-weights-h5", "written_by": "lockstep"}


def save_directory(model: Model, path: str | os.PathLike[str]) -> None:
    """Saves `model`, its optimizer's state included, as the directory `path`, as Keras 2 did to a path without ending.

    The content is that of Keras 3's own unzipped format (`config.json`, `metadata.json`, `model.weights.h5`,
    `assets/`), so that `keras.models.load_model` reads it everywhere, without this package. A model that was saved
    there before is replaced when the new one is complete; other files in the directory stay.

    Raises:
        CheckpointError: If it cannot be written.
    """
    target = Path(os.path.abspath(path))
    # Beside the target, on its file system, where a rename is atomic.
    staged = target.with_name(f".{target.name}.unfinished-{uuid.uuid4().hex[:8]}")
    with naming(str(target)):
        staged.mkdir(parents=True)
        try:
            saving_lib.save_model(model, str(staged), zipped=False)
            note_lambdas(model)
            if target.is_dir() and any(entry.name not in _PARTS for entry in target.iterdir()):
                # Other files in the directory (logs, a README) are the user's: it cannot be exchanged, only the model's
                # files, each in one step.
                for name in _PARTS:
                    if (staged / name).exists():
                        take_place(staged / name, target / name, target / f".{name}.previous")
            else:
                take_place(staged, target, _aside(target))
        finally:
            remove(staged)


def recover(path: str | os.PathLike[str]) -> None:
    """Puts back what a process that ended between the two renames of a replacement left aside."""
    target = Path(os.path.abspath(path))
    aside = _aside(target)
    if not target.exists() and aside.exists():
        aside.replace(target)


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.previous")


@contextlib.contextmanager
def whole_file(target: Path, suffix: str = "") -> Generator[Path]:
    """Gives a path to write to; when the block ends well, what was written becomes `target` in one step.

    Args:
        target: The file. Its directory is created.
        suffix: What the name of the temporary file ends in, for writers that look at it.

    Raises:
        CheckpointError: If it cannot be written.
    """
    with naming(str(target)):
        target.parent.mkdir(parents=True, exist_ok=True)
        _atomic.remove_leftovers(str(target.parent), suffix)
    with naming(str(target)), _atomic.replaced(str(target), suffix) as temporary:
        yield Path(temporary)


def when_built(layer: Layer, restore: Callable[[], None], saved: Mapping[str, Any] | None = None) -> None:
    """Restores a layer that is not built as soon as it is, before it computes; the last call counts.

    Args:
        layer: The layer or model.
        restore: Gives the variables their values.
        saved: The values, by the names that a checkpoint has for them: a save before that keeps them.
    """
    held = vars(layer)
    # What an earlier call has put there is dropped with its values.
    build = held[WAITING][0] if WAITING in held else layer.build

    @functools.wraps(build)
    def build_and_restore(*args: Argument, **kwargs: Argument) -> None:
        # Not by setattr: Keras tracks what is assigned.
        held["build"] = build
        build(*args, **kwargs)
        del held[WAITING]
        restore()

    held[WAITING] = build, dict(saved or {})
    held["build"] = build_and_restore


class Restored:
    """Status object that `load_weights` of a checkpoint returns: everything was restored, or waits for its layer.

    Args:
        waiting: The layers that are not built yet, whose values wait for that.

    Source: the status object of `tf.train.Checkpoint.restore`.
    """

    def __init__(self, waiting: Sequence[Layer] = ()) -> None:
        self._waiting = list(waiting)

    def assert_consumed(self) -> Restored:
        """Checks that every weight was restored.

        Raises:
            AssertionError: If a layer that is not built has yet to take its values.
        """
        names = [layer.name for layer in self._waiting if WAITING in vars(layer)]
        if names:
            raise AssertionError(f"Values wait for layers that are not built: {', '.join(names)}. Call them before.")
        return self

    def assert_existing_objects_matched(self) -> Restored:
        """Does nothing: every weight that is there was restored."""
        return self

    def assert_nontrivial_match(self) -> Restored:
        """Does nothing: a checkpoint without a match is an error before."""
        return self

    def expect_partial(self) -> Restored:
        """Does nothing: every weight was restored."""
        return self

    def initialize_or_restore(self, session: None = None) -> None:
        """Does nothing: values are there once `restore` has returned."""

    def run_restore_ops(self, session: None = None) -> None:
        """Does nothing: values are there once `restore` has returned."""


def write_checkpoint(model: Model, prefix: str | os.PathLike[str]) -> None:
    """Saves the weights of `model`, and its optimizer's state, under `prefix`; it is now the newest there.

    Raises:
        CheckpointError: If a checkpoint of TensorFlow has this name.
    """
    target = Path(os.path.abspath(prefix))
    _of_tensorflow.refuse_at(target)
    # A model that was never called has no weights, and Keras 2 saves none; Keras 3 refuses.
    was_built = model.built
    model.built = True
    try:
        with whole_file(_weights(target), _WEIGHTS) as temporary:
            saving_api.save_weights(model, str(temporary))
    finally:
        model.built = was_built
    # After the weights: a program that sees the index finds them whole.
    with whole_file(_index(target)) as temporary:
        temporary.write_text(json.dumps(_FORMAT))
    # Last, for the same reason: the file names only what is there.
    _make_newest(target)


def read_checkpoint(model: Model, prefix: str | os.PathLike[str], **options: Argument) -> Restored:
    """Loads what `write_checkpoint` saved under `prefix`, or what Keras 2 did in TensorFlow's format.

    Raises:
        ArgumentError: If only some of TensorFlow's variables are asked for.
        CheckpointError: If TensorFlow's checkpoint is damaged, or lacks a variable.
        DataNotFoundError: If nothing lies there.
    """
    target = Path(os.path.abspath(prefix))
    weights = _weights(target)
    if not weights.exists() and _is_of_tensorflow(target):
        asked = [name for name, value in options.items() if value]
        if asked:
            raise ArgumentError(
                f"TensorFlow's checkpoints are loaded whole. Received: {', '.join(asked)}. Leave it out, or read "
                "single variables with tf.train.load_checkpoint."
            )
        restore_model(Bundle(str(target)), model)
        return Restored()
    if not weights.exists():
        raise DataNotFoundError(f"No weights were saved at {target}: neither {weights.name} nor an index is there.")
    if not model.built:
        when_built(model, lambda: load_into(model, weights, **options))
        return Restored([model])
    load_into(model, weights, **options)
    return Restored()


def is_of_keras(prefix: str | os.PathLike[str]) -> bool:
    """Returns whether `write_checkpoint` saved under this prefix."""
    return _weights(Path(os.path.abspath(prefix))).exists()


def _is_of_tensorflow(prefix: Path) -> bool:
    """Returns whether an index is TensorFlow's, whole or damaged, and not the one that `write_checkpoint` wrote."""
    try:
        return not _index(prefix).read_bytes().startswith(b"{")
    except OSError:
        return False


def load_into(model: Model, weights: Path, **options: Argument) -> None:
    """Loads weights, and the optimizer's state if it is of this kind of optimizer; Keras 2 ignored another's too."""
    make_ready(model, weights)
    saving_api.load_weights(model, str(weights), objects_to_skip=_find_foreign_optimizer(model, weights), **options)


def latest_checkpoint(directory: str | os.PathLike[str], latest_filename: str | None = None) -> str | None:
    """Finds the newest weights that were saved under a prefix in `directory`.

    Args:
        directory: Where the checkpoints lie.
        latest_filename: The file that names the newest. Default: `checkpoint`.

    Returns:
        The prefix, for `model.load_weights`, or None if there is none. Source: `tf.train.latest_checkpoint`.

    Raises:
        InputError: If the file that names the newest is damaged.
    """
    state = Path(directory) / (latest_filename or "checkpoint")
    if not state.exists():
        return None
    # TensorFlow writes names relative to the directory, so that it can be moved.
    prefix = os.path.join(os.fspath(directory), _names(state)[0])
    # Retention by another program may have removed the file.
    return prefix if _weights(Path(prefix)).exists() or is_bundle(prefix) else None


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
