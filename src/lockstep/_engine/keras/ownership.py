"""Which models belong to which replicas: those that were created, loaded or compiled under a strategy's scope."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lockstep._engine.keras.callbacks import only_chief_prints
from lockstep._engine.keras.initial_values import without_programs
from lockstep._engine.step.replicas import Replicas
from lockstep._engine.step.state import LocalCopies
from lockstep._engine.step.zero1 import OptimizerStateGather
from lockstep._types import Model

if TYPE_CHECKING:
    from lockstep._engine.keras.servers.options import ServerOptions
    from lockstep._engine.keras.servers.scheduled import Scheduler


@dataclass(eq=False)
class Ownership:
    """The record of one model.

    Attributes:
        replicas: Where it trains.
        copies: The arrays on the replicas behind its variables. What was not assigned to need not be placed again.
        reading: The sync points of variables that are sharded since the last training, if there are any.
        servers: The parameter servers that hold its variables while it trains, if it trains with such.
        spec: The optimizer, the variables and the spec of the last training with servers.
        is_training: Whether a training with servers is under way.
        scheduler: Returns who has workers without a program compute its training steps; `None` for no such workers.
    """

    replicas: Replicas
    copies: LocalCopies = field(default_factory=LocalCopies)
    reading: OptimizerStateGather | None = None
    servers: ServerOptions | None = None
    spec: tuple[Any, Any, Any] | None = None
    is_training: bool = False
    scheduler: Callable[[], Scheduler] | None = None

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
_places: list[Callable[[Model], Replicas | None]] = []
_scope = threading.local()


@contextlib.contextmanager
def scope(
    replicas: Replicas, servers: ServerOptions | None = None, scheduler: Callable[[], Scheduler] | None = None
) -> Generator[None]:
    """Has models created or compiled on this thread belong to `replicas`.

    Args:
        replicas: Where they train.
        servers: The parameter servers that hold their variables, if they train with such.
        scheduler: Returns who has workers compute their training steps, if they have no program.
    """
    before = getattr(_scope, "place", None)
    _scope.place = replicas, servers, scheduler
    try:
        with without_programs():
            yield
    finally:
        _scope.place = before


def claim(model: Model) -> None:
    """Gives `model` to the scope that is open, if one is and the model is not taken."""
    place = getattr(_scope, "place", None)
    if place is not None and model not in _owned:
        _owned[model] = Ownership(place[0], servers=place[1], scheduler=place[2])


def ownership(model: Model) -> Ownership | None:
    """Returns the record of `model`, or `None` for a model of plain Keras."""
    return _owned.get(model)


def place_models(place: Callable[[Model], Replicas | None]) -> None:
    """Has models that belong to no strategy ask `place`, when they are first run, for the replicas to belong to.

    Args:
        place: Returns the replicas, or `None` for a model that stays plain Keras'.
    """
    _places.append(place)


def ownership_for_run(model: Model) -> Ownership | None:
    """Returns the record of a model that is to run; see `place_models`."""
    if (owned := _owned.get(model)) is not None:
        return owned
    for place in _places:
        if (replicas := place(model)) is not None:
            _owned[model] = Ownership(replicas)
            return _owned[model]
    return None
