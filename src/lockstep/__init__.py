"""lockstep: tf.distribute's programming model on Keras 3 and JAX, with one device's trajectory.

Import it before Keras: it chooses Keras' JAX backend, on which everything here runs, and changes nothing else in the
process. Its parts are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lockstep._backend import choose_backend as _choose_backend

if TYPE_CHECKING:
    from lockstep import checkpoint as checkpoint
    from lockstep import cluster_resolver as cluster_resolver
    from lockstep import compat as compat
    from lockstep import config as config
    from lockstep import data as data
    from lockstep import datasets as datasets
    from lockstep import distribute as distribute
    from lockstep import errors as errors
    from lockstep import estimator as estimator
    from lockstep import report as report
    from lockstep import saved_model as saved_model
    from lockstep import summary as summary
    from lockstep import testing as testing
    from lockstep import training as training
    from lockstep._notebook.launch import launch as launch
    from lockstep.training import callbacks as callbacks
    from lockstep.training import function as function
    from lockstep.training import random as random

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "callbacks",
    "checkpoint",
    "cluster_resolver",
    "compat",
    "config",
    "data",
    "datasets",
    "distribute",
    "errors",
    "estimator",
    "function",
    "launch",
    "random",
    "report",
    "saved_model",
    "summary",
    "testing",
    "training",
]


_choose_backend()

# Short names of what programs use most.
_OF_TRAINING = ("callbacks", "function", "random")


def __getattr__(name: str) -> Any:
    if name in _OF_TRAINING:
        return getattr(importlib.import_module("lockstep.training"), name)
    if name == "launch":
        return importlib.import_module("lockstep._notebook.launch").launch
    if name in __all__:
        return importlib.import_module(f"lockstep.{name}")
    raise AttributeError(f"module 'lockstep' has no attribute {name!r}; it has {', '.join(__all__[1:])}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
