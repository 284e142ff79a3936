"""Checkpoints of loops of one's own when the machine is taken away: tf.distribute.experimental's names."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

from lockstep.cluster_resolver import ClusterResolver
from lockstep.compat.tensorflow._checkpoint import Checkpoint, CheckpointManager
from lockstep.compat.tensorflow._ops.variable import Variable
from lockstep.compat.tensorflow._types import Argument, PathLike
from lockstep.distribute import get_strategy
from lockstep.errors import ArgumentError

# TensorFlow's: 128 and the number of SIGTERM, by which schedulers start a task again.
_EXIT_CODE = 143
_LOOK_SECONDS = 1.0
# Where the checkpoint keeps how many calls of `run` it comes after.
_COUNTER = "run_calls"


class TerminationConfig:
    """How a program learns that it is to end, and how it does.

    Source: tf.distribute.experimental.TerminationConfig.
    """

    def __init__(
        self,
        termination_watcher_fn: Callable[[], bool] | None = None,
        exit_fn: Callable[[], object] | None = None,
        grace_period: float | None = None,
        save_fn: Callable[..., object] | None = None,
    ) -> None:
        """Creates a configuration.

        Args:
            termination_watcher_fn: Asked each second, on a thread, whether this task is to end, besides SIGTERM.
            exit_fn: Called at the end, after the checkpoint. Default: `sys.exit(143)`.
            grace_period: Seconds from the notice to the end. Training goes on until then, and a second checkpoint
                is saved. Default: 0, training ends at once.
            save_fn: Saves in place of the checkpoint's own way; called with what `save_checkpoint_if_preempted` is.

        Raises:
            ArgumentError: If `grace_period` is negative.
        """
        if grace_period is not None and grace_period < 0:
            raise ArgumentError(f"grace_period must be a number of seconds. Received: {grace_period!r}. Example: 30")
        self.termination_watcher_fn = termination_watcher_fn
        self.exit_fn = exit_fn
        self.grace_period = grace_period
        self.save_fn = save_fn


class PreemptionCheckpointHandler:
    """Saves a checkpoint at the same step on all tasks when one of them is to end, and goes on from the newest one.

    The chief writes for all. Under `model.fit` use lockstep.training.callbacks.BackupAndRestore.

    Source: tf.distribute.experimental.PreemptionCheckpointHandler.
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None,
        checkpoint_or_checkpoint_manager: Checkpoint | CheckpointManager,
        checkpoint_dir: PathLike | None = None,
        termination_config: TerminationConfig | None = None,
    ) -> None:
        """Restores the newest checkpoint, if there is one, and begins to listen for SIGTERM.

        Args:
            cluster_resolver: The strategy's; the tasks are asked by way of the strategy.
            checkpoint_or_checkpoint_manager: What is saved; with a manager, where it says.
            checkpoint_dir: Where a `Checkpoint` is saved.
            termination_config: How to learn of the end. Default: by SIGTERM, and the end is at once.

        Raises:
            ArgumentError: If a `Checkpoint` has no `checkpoint_dir`.
        """
        if isinstance(checkpoint_or_checkpoint_manager, CheckpointManager):
            self._manager = checkpoint_or_checkpoint_manager
        elif checkpoint_dir is None:
            raise ArgumentError(
                "A Checkpoint needs a directory to be saved in. Received: checkpoint_dir=None. Pass checkpoint_dir, or "
                "a tf.train.CheckpointManager."
            )
        else:
            self._manager = CheckpointManager(checkpoint_or_checkpoint_manager, checkpoint_dir, max_to_keep=1)
        self._config = termination_config or TerminationConfig()
        self._calls = Variable(0, dtype="int32", trainable=False, name=_COUNTER)
        setattr(self._manager.checkpoint, _COUNTER, self._calls)
        self._asked = threading.Event()
        self._deadline: float | None = None
        self._previous: Any = None
        self._is_in_scope = False
        newest = self._manager.latest_checkpoint
        if newest is not None:
            self._manager.checkpoint.restore(newest)
        self._listen()

    @property
    def total_run_calls(self) -> int:
        """How many times `run` was called, those before the restored checkpoint included."""
        return int(self._calls.numpy())

    def run(self, distributed_train_function: Callable[..., Any], *args: Argument, **kwargs: Argument) -> Any:
        """Calls a function of one or several steps; saves and ends the program if a task is to end.

        All tasks call it alike.

        Args:
            distributed_train_function: What trains: a function that calls `strategy.run`.
            *args: Its positional arguments.
            **kwargs: Its arguments by name.

        Returns:
            What the function returns.
        """
        # Before the step, as TensorFlow: the checkpoint comes after all steps that were counted.
        self._end_if_asked()
        result = distributed_train_function(*args, **kwargs)
        self._calls.assign_add(1)
        return result

    @contextlib.contextmanager
    def watch_preemption_scope(self) -> Generator[None]:
        """Opens a context in which `save_checkpoint_if_preempted` counts."""
        self._is_in_scope = True
        try:
            yield
        finally:
            self._is_in_scope = False

    def save_checkpoint_if_preempted(self, *args: Argument, **kwargs: Argument) -> None:
        """Saves and ends the program if a task is to end; arguments go to the saving function."""
        self._end_if_asked(*args, **kwargs)

    def _end_if_asked(self, *args: Argument, **kwargs: Argument) -> None:
        is_asked, left = self._agree()
        if not is_asked:
            return
        if self._deadline is None:
            self._save(*args, **kwargs)
            self._deadline = left
            if left > 0:
                return
        elif left > 0:
            return
        else:
            self._save(*args, **kwargs)
        signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)
        if self._config.exit_fn is not None:
            self._config.exit_fn()
        else:
            sys.exit(_EXIT_CODE)

    def _agree(self) -> tuple[bool, float]:
        """Returns whether any task is to end, and the seconds that are left, the same on all tasks."""
        runtime = get_strategy()._demanded_replicas().runtime  # pyright: ignore[reportPrivateUsage]
        if self._asked.is_set() and self._since is None:
            self._since = time.monotonic()
        used = 0.0 if self._since is None else time.monotonic() - self._since
        mine = [self._asked.is_set(), (self._config.grace_period or 0.0) - used]
        everyone = [mine] if runtime.is_alone else runtime.all_gather_object("whether a task is to end", mine)
        asked = [left for is_asked, left in everyone if is_asked]
        return bool(asked), min(asked, default=0.0)

    _since: float | None = None

    def _save(self, *args: Argument, **kwargs: Argument) -> None:
        if self._config.save_fn is not None:
            self._config.save_fn(*args, **kwargs)
        elif get_strategy().is_chief:
            self._manager.save(*args, checkpoint_number=self.total_run_calls, check_interval=False, **kwargs)

    def _listen(self) -> None:
        # Python allows handlers on the main thread alone; elsewhere the watcher is what tells.
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._note)
        if self._config.termination_watcher_fn is not None:
            threading.Thread(target=self._watch, name="lockstep-termination-watcher", daemon=True).start()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked.set()

    def _watch(self) -> None:
        watcher = self._config.termination_watcher_fn
        assert watcher is not None
        while not watcher():
            # It is asked again and again: a platform tells by an answer, not by an event.
            if self._asked.wait(_LOOK_SECONDS):
                return
        self._asked.set()
