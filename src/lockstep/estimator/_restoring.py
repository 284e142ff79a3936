"""The values with which a run starts: from a checkpoint, from another model's, or new ones."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from lockstep import checkpoint
from lockstep._engine.runtime import environment, launcher_files
from lockstep.errors import CheckpointError
from lockstep.estimator._model_fn.variables import GLOBAL_STEP, Variables

_log = logging.getLogger("lockstep")
_STRICT = "LOCKSTEP_STRICT_CHECKPOINTS"
_MEANING = "a damaged checkpoint is an error, and none before it is used"
Values = dict[str, np.ndarray]


def restore(variables: Variables, path: str) -> Values:
    """Returns the variables in a checkpoint; local ones get new values.

    Raises:
        CheckpointError: If it lacks a variable, or holds another shape.
    """
    with checkpoint.pinned(path):
        return restore_loaded(variables, checkpoint.load(path))


def restore_loaded(variables: Variables, loaded: checkpoint.Checkpoint) -> Values:
    """Returns the variables in a loaded checkpoint; local ones get new values.

    Raises:
        CheckpointError: If it lacks a variable, or holds another shape.
    """
    path, arrays = loaded.prefix, loaded.arrays
    _log.info("Restoring parameters from %s", path)
    # Metrics and loss averages start anew in each run, so no checkpoint holds them.
    local = [key for key, entry in variables.entries.items() if entry.local]
    fresh = variables.initial_values() if local else {}
    return {
        key: fresh[key] if key in local else _check_value(variables, key, arrays, path) for key in variables.entries
    }


def load_newest(directory: str) -> checkpoint.Checkpoint | None:
    """Loads the newest intact checkpoint; logs a warning for damaged ones.

    Raises:
        CheckpointError: If LOCKSTEP_STRICT_CHECKPOINTS is 1 and the newest one is damaged.
    """
    loaded = checkpoint.load_newest(directory, strict=environment.env_flag(_STRICT, _MEANING, default=False))
    if loaded is not None:
        launcher_files.mark("restored")
    return loaded


def initialize(variables: Variables, warm_start: Callable[[Values], Values] | None) -> Values:
    """Returns first values, after the warm start if there is one."""
    values = variables.initial_values()
    return values if warm_start is None else warm_start(values)


def _check_value(variables: Variables, key: str, arrays: dict[str, np.ndarray], path: str) -> np.ndarray:
    entry = variables.entries[key]
    if key not in arrays:
        raise CheckpointError(
            f"A checkpoint must hold every variable of the model_fn. {path} lacks {key} ({entry}); it holds "
            f"{', '.join(sorted(arrays)[:8])}... Train this model in another model_dir, with "
            "WarmStartSettings(ckpt_to_initialize_from=...) to take over what fits."
        )
    if arrays[key].shape != entry.shape:
        raise CheckpointError(
            f"A checkpoint must hold variables of the model_fn's shapes. {path} has {key} with "
            f"{arrays[key].shape}; the model_fn makes it {entry.shape}. Use another model_dir."
        )
    return np.asarray(arrays[key]).astype(entry.dtype, copy=False)


def global_step_of(path: str | None) -> int:
    """Returns the global step of a checkpoint, 0 without one."""
    return 0 if path is None else int(checkpoint.load_variable(path, GLOBAL_STEP))
