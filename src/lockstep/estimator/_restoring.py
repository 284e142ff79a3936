"""The values with which a run starts: from a checkpoint, from another model's, or new ones."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from lockstep import checkpoint
from lockstep._model_fn.variables import GLOBAL_STEP, Variables
from lockstep._runtime import progress_file, switch
from lockstep.errors import CheckpointError

_log = logging.getLogger("lockstep")
_STRICT = "LOCKSTEP_STRICT_CHECKPOINTS"
_MEANING = "a damaged checkpoint is an error, and none before it is used"
Values = dict[str, np.ndarray]


def restored(variables: Variables, path: str) -> Values:
    """Returns the values in a checkpoint; those of local variables are new.

    Raises:
        CheckpointError: If it lacks a variable, or holds another shape.
    """
    with checkpoint.pinned(path):
        return values_of(variables, checkpoint.load(path))


def values_of(variables: Variables, loaded: checkpoint.Checkpoint) -> Values:
    """Returns the values in a checkpoint that was read; those of local variables are new.

    Raises:
        CheckpointError: If it lacks a variable, or holds another shape.
    """
    path, found = loaded.prefix, loaded.arrays
    _log.info("Restoring parameters from %s", path)
    local = [key for key, entry in variables.entries.items() if entry.local]
    fresh = variables.initial_values() if local else {}
    return {key: fresh[key] if key in local else _checked(variables, key, found, path) for key in variables.entries}


def newest(directory: str) -> checkpoint.Checkpoint | None:
    """Returns the newest checkpoint that is any good; the log warns of those that are not.

    Raises:
        CheckpointError: If LOCKSTEP_STRICT_CHECKPOINTS is 1 and the newest one is damaged.
    """
    found = checkpoint.load_newest(directory, strict=switch.is_on(_STRICT, _MEANING, default=False))
    if found is not None:
        progress_file.mark("restored")
    return found


def new(variables: Variables, warm_start: Callable[[Values], Values] | None) -> Values:
    """Returns first values, after a warm start if there is one."""
    values = variables.initial_values()
    return values if warm_start is None else warm_start(values)


def _checked(variables: Variables, key: str, found: dict[str, Any], path: str) -> np.ndarray:
    entry = variables.entries[key]
    if key not in found:
        raise CheckpointError(
            f"A checkpoint must hold every variable of the model_fn. {path} lacks {key} ({entry}); it holds "
            f"{', '.join(sorted(found)[:8])}... Train this model in another model_dir, with "
            "WarmStartSettings(ckpt_to_initialize_from=...) to take over what fits."
        )
    if found[key].shape != entry.shape:
        raise CheckpointError(
            f"A checkpoint must hold variables of the model_fn's shapes. {path} has {key} with "
            f"{found[key].shape}; the model_fn makes it {entry.shape}. Use another model_dir."
        )
    return np.asarray(found[key]).astype(entry.dtype, copy=False)


def global_step_of(path: str | None) -> int:
    """Returns the global step of a checkpoint, 0 without one."""
    return 0 if path is None else int(checkpoint.load_variable(path, GLOBAL_STEP))
