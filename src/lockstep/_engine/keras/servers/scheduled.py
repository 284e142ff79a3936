"""`Model.fit` of a coordinator: its loop reads and calls callbacks, and workers without a program compute the steps."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from lockstep._engine.keras.compiled_models import is_compiled
from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.servers.options import ServerOptions
from lockstep._engine.keras.servers.served_state import ServedState
from lockstep._engine.keras.state import TRAIN
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.servers.host_program import HostProgram
from lockstep._engine.step.batches import DeviceBatch, Outputs
from lockstep._types import Batch, Model
from lockstep.errors import UnsupportedError

_log = logging.getLogger("lockstep")
# The chief looks which kind of workers there are once the first one is there, or goes on alone.
_FIRST_WORKER_SECONDS = 60.0
# Steps that wait at each worker while it computes one.
_AHEAD = 2


class Result(Protocol):
    """The result of a step that was scheduled."""

    def fetch(self) -> Any:
        """Waits for it, and returns it."""
        ...


class Scheduler(Protocol):
    """Names who has workers compute functions: a `ClusterCoordinator`."""

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        ...

    def schedule(self, fn: Callable[..., Any], args: Any = None, kwargs: Any = None) -> Result:
        """Has a worker compute a function."""
        ...

    def join(self) -> None:
        """Waits until all are computed."""
        ...


def scheduler_of(options: ServerOptions) -> Callable[[], Scheduler] | None:
    """Returns who has workers compute the chief's steps, if those that are there have no program; else `None`."""
    task = options.job.task
    if task.type not in ("chief", "master"):
        return None
    serving, others = options.job.workers(_FIRST_WORKER_SECONDS)
    if not serving:
        return None
    if not others and not (options.is_synchronous or options.lazy or options.log_order):
        return options.scheduler
    _log.warning(
        "%s: no program runs there but Server.join(), so that no batch of this fit is computed there%s. Run the same "
        "program on every task.",
        ", ".join(serving),
        "" if others else ", as mode='sync', lazy and log_order need one",
    )
    return None


class ScheduledProgram(HostProgram):
    """A model's training step, which workers compute, several at the same time.

    Args:
        model: Built, with its optimizer.
        scheduler: Has workers compute it.
        runtime: This process.
    """

    def __init__(self, model: Model, scheduler: Scheduler, runtime: Runtime) -> None:
        super().__init__(runtime)
        if not is_compiled(model):
            raise UnsupportedError(
                "Workers compute what is taken from the trace of a step. Received: a model with run_eagerly=True or "
                "jit_compile=False. Leave these out, or debug with a strategy without parameter servers."
            )
        self._model, self._scheduler = model, scheduler
        self._waiting: deque[Result] = deque()
        self._most = _AHEAD * scheduler.num_workers
        self.steps = 0

    def run(self, state: Any, placed: DeviceBatch) -> tuple[Outputs, Any]:
        """Schedules a step; returns the logs of one some steps before, so that workers need not wait for each other."""
        self._waiting.append(self._scheduler.schedule(self._step, (placed.data,)))
        self.steps += 1
        first = self._waiting.popleft() if len(self._waiting) > self._most else self._waiting[0]
        return Outputs(first.fetch(), None, lambda value: value), state

    def finish(self) -> None:
        """Waits until all steps are computed, and applied."""
        self._scheduler.join()
        self._waiting.clear()

    def _step(self, data: Batch) -> Any:
        """Computes `train_step` of the model, and assigns what it changes; traced."""
        model: Any = self._model
        groups = [getattr(model.optimizer if name == "optimizer_variables" else model, _GROUPS[name]) for name in TRAIN]
        values = tuple([v.value for v in group] for group in groups)
        logs, after = model.train_step(values, data)
        for group, olds, news in zip(groups, values, after, strict=True):
            for variable, old, new in zip(group, olds, news, strict=True):
                if new is not old:
                    variable.assign(new)
        return logs


_GROUPS = {name: name for name in TRAIN} | {"optimizer_variables": "variables"}


class ScheduledState(ServedState):
    """A model's variables, which servers hold, and which are fetched when they are read."""

    _program: ScheduledProgram

    def __init__(self, model: Model, owned: Ownership, program: ScheduledProgram) -> None:
        super().__init__(model, owned, program, TRAIN)
        self._steps_of = program
        self._first_step = super().global_step

    def sync(self) -> None:
        """Waits until all steps are applied: variables that are read then have their values after these."""
        self._steps_of.finish()

    def gather(self) -> None:
        """Does nothing: variables are fetched when they are read."""

    @property
    def global_step(self) -> int | None:
        """Returns the number of updates that were scheduled."""
        return None if self._first_step is None else self._first_step + self._steps_of.steps
