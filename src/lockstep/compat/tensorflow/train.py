"""tf.train: examples in records, clusters, checkpoints; TensorFlow 1's names are found here, too."""

# ruff: noqa: F822

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

import importlib as _importlib
import os as _os
from collections.abc import Callable as _Callable
from collections.abc import Iterator as _Iterator
from typing import Any as _Any

from lockstep.cluster_resolver import ClusterSpec as ClusterSpec
from lockstep.compat.tensorflow import _forward, _missing
from lockstep.errors import InputError as _InputError

# What lockstep.data has under the same names.
_DATA = (
    *("BytesList", "Example", "Feature", "FeatureList", "FeatureLists", "Features", "FloatList", "Int64List"),
    "SequenceExample",
)
_CHECKPOINTS = ("get_checkpoint_state", "list_variables", "load_checkpoint", "load_variable")
_OWN = ("Checkpoint", "CheckpointManager", "CheckpointOptions")
_AVERAGE = "ExponentialMovingAverage"
_V1 = "lockstep.compat.tensorflow.compat.v1.train"

__all__ = ["BytesList", "Checkpoint", "CheckpointManager", "CheckpointOptions", "ClusterSpec", "Example", "Feature"]
__all__ += ["ExponentialMovingAverage", "FeatureList", "FeatureLists", "Features", "FloatList", "Int64List"]
__all__ += ["SequenceExample"]
__all__ += ["checkpoints_iterator", "get_checkpoint_state", "latest_checkpoint", "list_variables", "load_checkpoint"]
__all__ += ["load_variable"]

_other = _missing.getter(__name__)


def latest_checkpoint(checkpoint_dir: str | _os.PathLike[str], latest_filename: str | None = None) -> str | None:
    """Finds the newest checkpoint of an Estimator, or the newest weights that Keras saved under a prefix.

    Args:
        checkpoint_dir: The directory that it lies in.
        latest_filename: The file that names the newest. Default: `checkpoint`.

    Returns:
        Its prefix, or None if there is none.

    Raises:
        InputError: If the file that names the newest weights is damaged.

    Source: tf.train.latest_checkpoint.
    """
    from lockstep.checkpoint import latest_checkpoint as of_estimator
    from lockstep.compat.tensorflow.keras._saves import latest_checkpoint as of_keras

    # Both keep a file `checkpoint`. Keras' reader raises for an Estimator's, which is of another form.
    try:
        weights = of_keras(checkpoint_dir, latest_filename)
    except _InputError:
        checkpoint = of_estimator(checkpoint_dir, latest_filename)
        if checkpoint is None:
            raise
        return checkpoint
    return of_estimator(checkpoint_dir, latest_filename) if weights is None else weights


def checkpoints_iterator(
    checkpoint_dir: str | _os.PathLike[str],
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: _Callable[[], bool] | None = None,
) -> _Iterator[str]:
    """Yields the newest checkpoint, of an Estimator or of Keras, whenever there is a new one.

    Args:
        checkpoint_dir: The directory, which need not be there yet.
        min_interval_secs: How many seconds lie at least between two of them.
        timeout: How many seconds to wait at most for the next one. Default: for ever.
        timeout_fn: Called after that time; if it returns `True` the iterator ends, else it goes on waiting. Default: it
            ends.

    Yields:
        The name of a checkpoint.

    Source: tf.train.checkpoints_iterator.
    """
    from lockstep.checkpoint.internal import watch

    directory = _os.fspath(checkpoint_dir)
    yield from watch(directory, lambda: latest_checkpoint(directory), min_interval_secs, timeout, timeout_fn)


def __getattr__(name: str) -> _Any:
    if name in _OWN:
        return getattr(_importlib.import_module("lockstep.compat.tensorflow._checkpoint"), name)
    if name == _AVERAGE:
        return getattr(_importlib.import_module("lockstep.compat.tensorflow._moving_average"), name)
    if name in _CHECKPOINTS:
        return getattr(_importlib.import_module("lockstep.checkpoint"), name)
    if name in _DATA:
        return _forward.find_in_data(name)
    # TensorFlow 1's optimizers and hooks are under tf.train in programs of TensorFlow 1.
    older: _Any = None if name.startswith("__") else _importlib.import_module(_V1)
    return _other(name) if older is None or name not in older.__all__ else getattr(older, name)


__dir__ = _missing.lister(globals(), dict.fromkeys((*_DATA, *_CHECKPOINTS, *_OWN, _AVERAGE), ""))
