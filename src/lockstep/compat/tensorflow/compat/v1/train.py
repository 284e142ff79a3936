"""tf.compat.v1.train: optimizers, learning rates and the global step of lockstep.estimator.train, hooks of "
"lockstep.estimator.
"""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

import importlib as _importlib
from collections.abc import Iterator as _Iterator
from typing import Any as _Any

from lockstep.compat.tensorflow import _missing

_OPTIMIZERS = (
    *("AdadeltaOptimizer", "AdagradOptimizer", "AdamOptimizer", "FtrlOptimizer", "GradientDescentOptimizer"),
    *("MomentumOptimizer", "Optimizer", "ProximalAdagradOptimizer", "ProximalGradientDescentOptimizer"),
    *("RMSPropOptimizer", "SyncReplicasOptimizer"),
)
_RATES = (
    *("cosine_decay", "cosine_decay_restarts", "exponential_decay", "inverse_time_decay", "linear_cosine_decay"),
    *("natural_exp_decay", "noisy_linear_cosine_decay", "piecewise_constant", "piecewise_constant_decay"),
    "polynomial_decay",
)
_STEPS = (
    "init_from_checkpoint",
    "assert_global_step",
    "create_global_step",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
)
_CHECKPOINTS = (
    *("checkpoint_exists", "checkpoints_iterator", "get_checkpoint_mtimes", "get_checkpoint_state"),
    *("list_variables", "load_checkpoint", "load_variable", "remove_checkpoint", "update_checkpoint_state"),
)
_HOOKS = (
    *("CheckpointSaverHook", "CheckpointSaverListener", "FeedFnHook", "FinalOpsHook", "GlobalStepWaiterHook"),
    *("LoggingTensorHook", "NanLossDuringTrainingError", "NanTensorHook", "ProfilerHook", "SecondOrStepTimer"),
    *("SessionRunArgs", "SessionRunContext", "SessionRunHook", "SessionRunValues", "StepCounterHook"),
    *("StopAtStepHook", "SummarySaverHook"),
)
# Where each name is.
_HOMES = {
    **dict.fromkeys((*_OPTIMIZERS, *_RATES, *_STEPS), "lockstep.estimator.train"),
    **dict.fromkeys(_CHECKPOINTS, "lockstep.checkpoint"),
    **dict.fromkeys(_HOOKS, "lockstep.estimator._hooks"),
    "Scaffold": "lockstep.estimator._estimator_spec",
    "VocabInfo": "lockstep.estimator._warm_start",
    "NewCheckpointReader": "lockstep.checkpoint",
    "Server": "lockstep.distribute",
}
_RENAMED = {"NewCheckpointReader": "load_checkpoint"}
_TRAIN = "lockstep.compat.tensorflow.train"
_DATA = (
    *("BytesList", "ClusterSpec", "Example", "Feature", "FeatureList", "FeatureLists", "Features", "FloatList"),
    *("Int64List", "SequenceExample", "latest_checkpoint", "Checkpoint", "CheckpointManager"),
    "ExponentialMovingAverage",
)

__all__ = [*_HOMES, *_DATA, "summary_iterator"]


def summary_iterator(path: str) -> _Iterator[_Any]:
    """Yields the messages `Event` of an event file. Source: tf.compat.v1.train.summary_iterator."""
    from lockstep.compat.tensorflow.compat.v1 import python_io
    from lockstep.summary import Event

    return (Event.FromString(record) for record in python_io.tf_record_iterator(path))


_other = _missing.getter(__name__)


def __getattr__(name: str) -> _Any:
    # Imported when a name is used: all of the Estimator comes with some of them.
    if name in _HOMES:
        return getattr(_importlib.import_module(_HOMES[name]), _RENAMED.get(name, name))
    return getattr(_importlib.import_module(_TRAIN), name) if name in _DATA else _other(name)


__dir__ = _missing.lister(globals(), dict.fromkeys(__all__, ""))
