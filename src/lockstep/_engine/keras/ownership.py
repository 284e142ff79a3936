"""Which models belong to which replicas: those that were created, loaded or compiled under a strategy's scope."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import jax

from lockstep._engine.step.replicas import Replicas
from lockstep._engine.step.zero1 import OptimizerStateGather


@dataclass(eq=False)
class Ownership:
    """What is remembered of one model.

    Attributes:
        replicas: Where it trains.
        handed_out: For each variable, by id: the local array it was last given, and the placed array behind it. A
            variable that still holds that very array has not changed, and need not be placed again.
        reading: Of variables whose values lie in parts since the last training, if there are any.
    """

    replicas: Replicas
    handed_out: dict[int, tuple[Any, jax.Array]] = field(default_factory=dict)
    reading: OptimizerStateGather | None = None

    def sync_point(self) -> None:
        """Waits for tasks that may still read such values; all tasks call it in the same places."""
        if self.reading is not None:
            self.reading.sync_point()


_owned: weakref.WeakKeyDictionary[Any, Ownership] = weakref.WeakKeyDictionary()
_scope = threading.local()


@contextlib.contextmanager
def scope(replicas: Replicas) -> Generator[None]:
    """While open, models created or compiled on this thread belong to `replicas`."""
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
    """Returns what is remembered of `model`, or `None` for a model of plain Keras."""
    return _owned.get(model)
