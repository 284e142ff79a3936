"""The weights behind a path: a checkpoint's, or those of an exported model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator

from lockstep import checkpoint
from lockstep.estimator._model_fn.variables import GLOBAL_STEP
from lockstep.saved_model import contains_saved_model
from lockstep.saved_model.internal import read_variables

# Where TensorFlow's exports keep their weights, and programs look for them.
_VARIABLES = os.path.join("variables", "variables")


def load_weights(path: str | bytes | os.PathLike[str]) -> checkpoint.Checkpoint:
    """Reads a checkpoint, the newest one of a directory, or the weights of an exported model.

    Args:
        path: The checkpoint's name, or the directory of the checkpoints or of the export; of the latter also
            `variables/variables` in it.

    Raises:
        CheckpointError: If there is nothing to read, or it is damaged.
    """
    name = os.fsdecode(path)
    directory = name.removesuffix(os.sep + _VARIABLES)
    if contains_saved_model(directory):
        arrays = dict(read_variables(directory))
        return checkpoint.Checkpoint(name, int(arrays.get(GLOBAL_STEP, 0)), arrays, {}, os.path.getmtime(directory))
    if os.path.exists(os.path.join(directory, f"{_VARIABLES}.index")):
        return checkpoint.load(os.path.join(directory, _VARIABLES))
    if os.path.isdir(name):
        newest = checkpoint.latest_checkpoint(name)
        if newest is None:
            # Its error says what a directory must hold.
            checkpoint.load_checkpoint(name)
        return checkpoint.load(newest or name)
    return checkpoint.load(name)


@contextlib.contextmanager
def hold_checkpoint(path: str | bytes | os.PathLike[str]) -> Generator[None]:
    """Keeps a training that goes on from deleting this checkpoint, within the context."""
    name = os.fsdecode(path)
    # Nobody deletes exports.
    pinned = contextlib.nullcontext() if os.path.isdir(name) else checkpoint.pinned(name)
    with pinned:
        yield
