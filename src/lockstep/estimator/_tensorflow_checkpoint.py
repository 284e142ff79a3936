"""Checkpoints of TensorFlow's Estimators, for the variables of a model_fn here.

Source: tf.estimator.Estimator, whose checkpoints hold variables by name; those of a Keras model hold objects, and the
names of their variables besides.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from lockstep import checkpoint
from lockstep.checkpoint.internal import tensorflow_names
from lockstep.estimator._model_fn.variables import Variables

_log = logging.getLogger("lockstep")
# So many names are enough to see what is meant.
_SHOWN = 20


def translate(variables: Variables, loaded: checkpoint.Checkpoint) -> checkpoint.Checkpoint:
    """Returns a checkpoint of TensorFlow with the variables' names of the same program here.

    Variables that TensorFlow has none of (the state of dropout's random numbers) keep their first values, and so does a
    learning rate that the checkpoint does not hold. The log names everything that is there and not used.
    """
    entries = variables.entries
    keys = [key for key, entry in entries.items() if not entry.local and not entry.is_seed]
    # Both names lead to a variable: that in the checkpoint, and the one in the program, where objects were saved.
    known = {full: key for key, full in (loaded.full_names or {}).items()}
    names = tensorflow_names.find_names(keys, known)
    arrays = {key: loaded.arrays[known[name]] for key, name in names.found.items()}
    rates = [key for key in names.missing if key.rpartition("/")[2] == tensorflow_names.RATE]
    kept = [*rates, *(key for key, entry in entries.items() if entry.is_seed)]
    if kept:
        fresh = variables.initial_values()
        arrays |= {key: fresh[key] for key in kept}
    _log.info("Read %d variables of TensorFlow's checkpoint %s.", len(names.found), loaded.prefix)
    if rates:
        _log.warning("%s has no learning rate: %s stays as the program says.", loaded.prefix, ", ".join(rates))
    if names.arguments:
        _log.info("Arguments of the program count, not those that were saved: %s.", ", ".join(names.arguments))
    if names.left_over:
        more = f" and {len(names.left_over) - _SHOWN} others" if len(names.left_over) > _SHOWN else ""
        shown = ", ".join(names.left_over[:_SHOWN])
        _log.warning("%s has variables that the model_fn does not: %s%s.", loaded.prefix, shown, more)
    return replace(loaded, arrays=arrays)
