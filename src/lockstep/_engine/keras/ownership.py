"""Which models belong to which replicas: those that were created, loaded or compiled under a strategy's scope."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from lockstep._engine.keras.callbacks import only_chief_prints
from lockstep._engine.step.replicas import Replicas
from lockstep._engine.step.state import LocalCopies
from lockstep._engine.step.zero1 import OptimizerStateGather


@dataclass(eq=False)
class Ownership:
    """The record of one model.

    Attributes:
        replicas: Where it trains.
        copies: The arrays on the replicas behind its variables. What was not assigned to need not be placed again.
        reading: The sync points of variables that are sharded since the last training, if there are any.
    """

    replicas: Replicas
    copies: LocalCopies = field(default_factory=LocalCopies)
    reading: OptimizerStateGather | None = None

    @contextlib.contextmanager
    def collective_call(self, call: str) -> Generator[None]:
        """Encloses a call that all workers make, in which only the chief prints."""
        runtime = self.replicas.runtime
        with runtime.collective_region(call), only_chief_prints(runtime):
            self.sync_point()
            yield

    def sync_point(self) -> None:
        """Waits for workers that may still read sharded variables; all workers call it in the same places."""
        if self.reading is not None:
            self.reading.sync_point()


# Beside the models: Keras tracks, and saves, attributes that are set on one.
_owned: weakref.WeakKeyDictionary[Any, Ownership] = weakref.WeakKeyDictionary()
_scope = threading.local()


@contextlib.contextmanager
def scope(replicas: Replicas) -> Generator[None]:
    """Has models created or compiled on this thread belong to `replicas`."""
    before = getattr(_scope, "replicas", None)
    _scope.replicas = replicas
    try:
        yield
    finally:
        _scope.replicas = before


def claim(model: Any) -> None:
    """Gives `model` to the scope that is open, if one is and the model is not taken."""
    replicas = getattr(_scope, "replicas", None)
    if replicas is not None and model not in _owned:
        _owned[model] = Ownership(replicas)


def ownership(model: Any) -> Ownership | None:
    """Returns the record of `model`, or `None` for a model of plain Keras."""
    return _owned.get(model)
