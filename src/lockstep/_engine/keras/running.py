"""What `fit`, `evaluate` and `predict` have in common."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Generator
from typing import Any

from keras.src.backend import config

from lockstep._engine.input import random_state
from lockstep._engine.input.batch import no_batch
from lockstep._engine.input.feed import Feed
from lockstep._engine.input.source import Source, source_of
from lockstep._engine.keras import agreement, programs
from lockstep._engine.keras.callbacks import only_chief_prints
from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.state import ModelState
from lockstep._engine.loop import loop
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import to_arrays
from lockstep._engine.step.protocol import Program
from lockstep._nest import opened
from lockstep.errors import Preempted


def _nothing() -> None:
    pass


@contextlib.contextmanager
def guarded(owned: Ownership, call: str) -> Generator[None]:
    """A call that all tasks make, in which only the chief prints."""
    runtime = owned.replicas.runtime
    with runtime.depending_on_others(call), only_chief_prints(runtime):
        owned.sync_point()
        yield


def drive(
    feed: Feed, program: Program, state: ModelState, listener: loop.Listener, interrupted: Callable[[], None] = _nothing
) -> int:
    """Runs the loop over the next epoch; returns its number of steps.

    Args:
        feed: The batches.
        program: The step.
        state: What it changes.
        listener: Is told of steps.
        interrupted: Called if all tasks are asked to end between two steps, while the data are still open.
    """
    with feed.epoch(state.shapes()) as batches:
        try:
            return loop.run(batches, program, state, listener)
        except Preempted:
            interrupted()
            raise


def source_for(owned: Ownership, call: str, model: Any, x: Any, **arguments: Any) -> Source:
    """Returns the source of a call's data.

    Sources may draw random numbers as soon as somebody looks at them. So all tasks start from the chief's random state
    before anybody does.
    """
    random_state.follow_chief(owned.replicas.runtime, call)
    return source_of(x, owned.replicas, programs.is_compiled(model), **arguments)


def feed_of(source: Source, program: Program, owned: Ownership, steps: int | None) -> Feed:
    """Returns the feed of a run, within Keras' cap for debugging runs."""
    limit = config.max_steps_per_epoch()
    return Feed(source, program, owned.replicas.runtime, capped(steps or limit, limit, "steps_per_epoch"))


def capped(value: Any, limit: int | None, name: str) -> Any:
    """Returns `value` within `limit`, Keras' cap for debugging runs."""
    if limit and value and limit < value:
        warnings.warn(f"Limiting {name} to {limit}", stacklevel=4)
        return limit
    return value


def run_dry(feed: Feed, epoch: int, model: Any) -> None:
    """An iterator that earlier epochs have used up ends the training; data without any batch is an error."""
    if not feed.exhausted or epoch == 0:
        raise no_batch()
    model.stop_training = True


def stops(runtime: Runtime, epoch: int, model: Any) -> bool:
    """Whether training ends with an epoch, on all tasks: because any task's callbacks say so."""
    model.stop_training = agreement.anyone(runtime, f"the end of epoch {epoch}", bool(model.stop_training))
    return model.stop_training


def preempted(callbacks: Any) -> None:
    """Tells callbacks that all tasks were asked to end, and have come to the same step."""
    for callback in callbacks.callbacks:
        if callable(getattr(callback, "on_preempted", None)):
            callback.on_preempted()


def build(model: Any, source: Source) -> None:
    """Builds what is not built yet, as Keras does, from the shapes of a first batch."""
    unbuilt = [
        part
        for part in (*model._flatten_layers(), model._compile_metrics, model._compile_loss)
        if part is not None and not part.built
    ]
    model._symbolic_build(data_batch=opened(to_arrays(source.peek())) if unbuilt else ())


def demand_data(steps: int) -> None:
    """Raises `InputError` if a run made no step."""
    if steps == 0:
        raise no_batch()
