"""Notices that a model which belongs to no strategy trains, in a process that has joined a cluster.

Keras is wrapped in such processes only. The scope of a strategy wraps it once more, and passes its own models by this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from keras.src.backend.jax.trainer import JAXTrainer

from lockstep._engine.runtime import local_training

_REMEDY = "Make it, or compile it, in the scope: `with strategy.scope(): ...`."


def watch() -> None:
    """Has the training methods of Keras' models warn; a process joins once."""
    for name in ("fit", "train_on_batch"):
        setattr(JAXTrainer, name, _warning(getattr(JAXTrainer, name)))


def _warning(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        local_training.warn(f"The model {self.name!r}", _REMEDY)
        return theirs(self, *args, **kwargs)

    return method
