"""The record of a training loop of one's own, for the report of its run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from typing import TYPE_CHECKING

from lockstep._engine.runtime.recorder import Recorder, recording
from lockstep._types import ArrayLike
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep.distribute import Strategy


class Record:
    """The record of a loop that is under way, from `record`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def log(self, step: int, **values: ArrayLike) -> None:
        """Notes values of a step, which the report draws. Reading one of an array waits until it is computed.

        Args:
            step: The number of the step, which goes on counting over restarts.
            values: Numbers, or arrays of one number, by the names of their curves.
        """
        self._recorder.values(step, values)

    def restored(self) -> None:
        """Notes that the loop goes on with a checkpoint, so that the report shows one run with its restarts."""
        self._recorder.restored()


@contextlib.contextmanager
def record(strategy: Strategy, log_dir: str | os.PathLike[str]) -> Generator[Record]:
    """Keeps a record of a training loop of one's own, and leaves `report.html` when it ends; for `strategy.run`.

    `fit`, `Program.fit` and `Estimator.train` keep theirs by themselves. All workers call this; each appends to a
    record of its own in `log_dir`, or in the directory of `lockstep run --log-dir`.

    Args:
        strategy: The strategy of the loop.
        log_dir: The log directory of the run.

    Raises:
        ArgumentError: If `log_dir` is empty.

    Examples:
        >>> with ls.training.record(strategy, "runs/own") as run:
        ...     for step, batch in enumerate(dataset):
        ...         loss = train_step(batch)
        ...         if step % 100 == 0:
        ...             run.log(step, loss=loss)
    """
    if not log_dir:
        raise ArgumentError(f"log_dir is the path of a directory: received {log_dir!r}.")
    replicas = strategy._demanded_replicas()  # pyright: ignore[reportPrivateUsage]
    runtime = replicas.runtime
    about = {"replicas": replicas.count, "tasks": len(runtime.tasks)}
    account, task = runtime.preemption.progress, runtime.tasks[runtime.process]
    with recording(account, task, log_dir, "own loop", about, is_chief=runtime.is_chief) as recorder:
        assert recorder is not None  # There is a log_dir.
        yield Record(recorder)
