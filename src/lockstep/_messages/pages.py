"""Which page an error belongs to: by its class, and where a class is raised all over, by the module that raises it."""

from __future__ import annotations

import inspect
from types import FrameType
from typing import Final

# The page of whatever has none of its own.
GENERAL: Final = "arguments"

# Classes with one meaning, wherever they are raised.
OF_CLASSES: Final = {
    "StartupOrderError": "startup-order",
    "MissingTaskError": "missing-task",
    "AddressError": "addresses",
    "ClusterSpecError": "cluster",
    "JoinError": "joining",
    "MismatchError": "mismatch",
    "PeerError": "peer",
    "NonFiniteError": "non-finite",
    "CardinalityError": "cardinality",
    "CheckpointError": "checkpoints",
    "DataNotFoundError": "data-not-found",
    "TaskError": "test-cluster",
}

# Modules below `lockstep`, for classes that say only that something was wrong: the longest prefix counts.
OF_MODULES: Final = {
    "_backend": "startup-order",
    "_cpu": "joining",
    "_decoded_size": "images",
    "_engine": "training-step",
    "_engine.input": "training-data",
    "_engine.keras": "keras",
    "_engine.runtime": "environment",
    "_engine.runtime.authentication": "secret",
    "_launch": "lockstep-run",
    "_nest": "structures",
    "_templates": "templates",
    "checkpoint": "checkpoints",
    "cluster_resolver": "cluster",
    "compat": "tensorflow-names",
    "compat.tensorflow._ops": "tensorflow-operations",
    "compat.tensorflow.compat.v1": "tensorflow-1",
    "compat.tensorflow.config": "devices",
    "compat.tensorflow.keras": "tensorflow-keras",
    "config": "devices",
    "data": "datasets",
    "data._example": "examples-of-records",
    "data._files": "files",
    "data._image": "images",
    "data._labelled_files": "files",
    "data._keras_adapter": "training-data",
    "data._map_program": "map-functions",
    "data._options": "sharding",
    "data._sharding": "sharding",
    "data._structure": "structures",
    "datasets": "data-sets-by-name",
    "distribute": "strategy-run",
    "distribute._communication": "communication-options",
    "distribute._devices": "devices",
    "distribute._multi_worker": "strategies",
    "distribute._options": "communication-options",
    "distribute._strategy": "strategies",
    "estimator": "estimator",
    "estimator._canned": "heads",
    "estimator._estimator_spec": "model-fn",
    "estimator._evaluation": "train-and-evaluate",
    "estimator._early_stopping": "train-and-evaluate",
    "estimator._export": "exports",
    "estimator._heads": "heads",
    "estimator._hooks": "hooks",
    "estimator._input_fns": "input-fn",
    "estimator._model_fn": "model-fn",
    "estimator._run_config": "run-config",
    "estimator._session_config": "run-config",
    "estimator._train_and_evaluate": "train-and-evaluate",
    "estimator._warm_start": "warm-start",
    "estimator.feature_column": "feature-columns",
    "estimator.losses": "losses-and-metrics",
    "estimator.metrics": "losses-and-metrics",
    "estimator.summary": "summaries",
    "estimator.train": "optimizers",
    "saved_model": "exports",
    "summary": "summaries",
    "testing": "test-cluster",
    "training": "program",
    "training._function": "function",
    "training.callbacks": "callbacks",
    "training.random": "strategy-run",
}


def page_of(kind: type[BaseException], module: str) -> str:
    """Returns the page of an error.

    Args:
        kind: The error's class; a class derived from one with a page has its page.
        module: The full name of the module that raises it.
    """
    # By name, so that the table imports none of the packages that raise. From the class itself outwards: one that is
    # derived from another may have a page of its own.
    for base in kind.__mro__:
        if base.__name__ in OF_CLASSES:
            return OF_CLASSES[base.__name__]
    names = module.split(".")[1:] if module.split(".")[0] == "lockstep" else []
    # From the longest on: `_engine.keras` must be found before `_engine`.
    prefixes = (".".join(names[:length]) for length in range(len(names), 0, -1))
    return next((OF_MODULES[prefix] for prefix in prefixes if prefix in OF_MODULES), GENERAL)


def calling_module(of: str) -> str:
    """Returns the name of the nearest module on the stack that is neither this one nor `of`, or "" without one."""
    # Not `inspect.stack()`, which looks for the lines of source of every frame, when one name is wanted.
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name not in (__name__, of):
            return name
        frame = frame.f_back
    return ""
