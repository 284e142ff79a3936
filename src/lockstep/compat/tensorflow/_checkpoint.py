"""tf.train.Checkpoint: what a training loop of one's own holds, in files of `lockstep.checkpoint`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from lockstep._types import Variable
from lockstep.checkpoint import CheckpointStore, get_checkpoint_state, latest_checkpoint, load
from lockstep.checkpoint.internal import Bundle, file_of, is_bundle, prefix_of, write
from lockstep.compat.tensorflow._checkpoint_paths import VALUE, is_trackable, states_at, variables_at
from lockstep.compat.tensorflow._checkpoint_values import ALIASES, Saved, Waiting, waiting_at
from lockstep.compat.tensorflow._types import Argument, PathLike, SizeLike, Trackable
from lockstep.compat.tensorflow.keras._saves import Restored
from lockstep.compat.tensorflow.keras._tensorflow_objects import restore_objects
from lockstep.errors import ArgumentError, UnsupportedError

_COUNTER = "save_counter"


class Checkpoint:
    """Saves and restores models, layers, optimizers, metrics, variables, iterators of datasets, and structures of them.

    Each is known by the name that it is given as, and its variables by the attributes that lead to them, such as
    `net/l1/kernel`: part of a model can be restored into an object that is made for it. What is not there yet gets its
    value when it is assigned or built. In a job of several processes every one saves, each in a directory of its own,
    or the chief alone.

    Source: tf.train.Checkpoint.
    """

    _lockstep_is_group = True

    def __init__(self, root: Trackable = None, **kwargs: Argument) -> None:
        """Creates a checkpoint.

        Args:
            root: One object, besides those with names.
            **kwargs: Objects by name; they are attributes.

        Raises:
            ArgumentError: If there is nothing in an object that can be saved.
        """
        if root is not None:
            kwargs["root"] = root
        self._waiting: Waiting | None = None
        # Objects are attributes under their names, as in TensorFlow: checkpoint.model.
        for name, value in kwargs.items():
            if not is_trackable(value):
                raise ArgumentError(
                    "A Checkpoint holds models, layers, optimizers, metrics, variables, iterators of datasets, and "
                    f"lists and dicts of them. Received: {name}={value!r:.80}. Put numbers into a tf.Variable."
                )
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name != _COUNTER:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        # Made when it is asked for: a checkpoint inside of another one counts nothing.
        counter = vars(self)[_COUNTER] = keras.Variable(0, dtype="int32", trainable=False, name=_COUNTER)
        return counter

    def __setattr__(self, name: str, value: Any) -> None:
        waiting = vars(self).get("_waiting")
        if waiting is not None and not name.startswith("_"):
            value = waiting.give(name, value)
        vars(self)[name] = value

    def save(self, file_prefix: PathLike, options: object = None) -> str:
        """Saves under `<file_prefix>-<number>`, which is the newest of its directory then; returns that name."""
        _check_options(options)
        self.save_counter.assign(self.save_counter + 1)
        # TensorFlow's prefix: a directory, and what the names begin with.
        directory, basename = os.path.split(os.fspath(file_prefix))
        with CheckpointStore(directory or ".", basename, keep_max=None) as store:
            return self.save_to(store, int(self.save_counter.value))

    def save_to(self, store: CheckpointStore, number: int) -> str:
        """Saves into a store, under a number; returns the name, before all is on the disk."""
        arrays, extra = self._state()
        return store.save(number, arrays, extra)

    def write(self, file_prefix: PathLike, options: object = None) -> str:
        """Saves under this very name, and counts nothing; returns it."""
        _check_options(options)
        prefix = os.fspath(file_prefix)
        os.makedirs(os.path.dirname(prefix) or ".", exist_ok=True)
        arrays, extra = self._state()
        write(file_of(prefix), int(self.save_counter.value), arrays, extra)
        return prefix

    def restore(self, save_path: PathLike, options: object = None) -> Restored:
        """Gives everything the values that were saved; those of layers and optimizers not yet built when they are.

        Checkpoints that TensorFlow 2 saved are read, too: objects are found by the names that they were given there.

        Args:
            save_path: What `save` returned, or `None` to restore nothing.
            options: `CheckpointOptions`, which change no result.

        Raises:
            CheckpointError: If it is not there, damaged, or does not hold what this checkpoint has.
            StartupOrderError: If a model has no variables yet, and TensorFlow saved the checkpoint.
        """
        _check_options(options)
        if save_path is None:
            return Restored()
        if is_bundle(prefix_of(save_path)) and not os.path.exists(file_of(save_path)):
            restore_objects(Bundle(prefix_of(save_path)), dict(self._objects()))
            return Restored()
        saved = Saved.of(load(save_path))
        if saved.below(_COUNTER):
            self.save_counter.assign(saved.below(_COUNTER)[_COUNTER])
        layers: list[Any] = []
        for name, value in self._objects():
            layers += saved.restore(name, value)
        Waiting(saved, "").put_on(self)
        return Restored(layers)

    read = restore

    def _objects(self) -> Iterator[tuple[str, Any]]:
        yield from ((name, value) for name, value in vars(self).items() if not name.startswith("_"))

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        aliases: dict[str, str] = {}
        first: dict[int, str] = {}
        for name, value in self._objects():
            for path, variable in variables_at(name, value).items():
                kept = first.setdefault(id(variable), path)
                if kept == path:
                    arrays[path + VALUE] = np.asarray(variable)
                else:
                    aliases[path] = kept
            extra |= {path: part.get_state() for path, part in states_at(name, value)}
            # State that was restored and waits for its object to be built must not be lost by a save before that.
            arrays |= {key: array for key, array in waiting_at(name, value).items() if key not in arrays}
        return arrays, {**extra, ALIASES: aliases} if aliases else extra


class CheckpointManager:
    """Keeps the newest checkpoints of a `Checkpoint` in a directory. Source: tf.train.CheckpointManager."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: PathLike,
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: Variable = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], object] | None = None,
    ) -> None:
        """Creates a manager.

        Args:
            checkpoint: What it saves.
            directory: Where.
            max_to_keep: How many stay, the newest ones; `None` for all.
            keep_checkpoint_every_n_hours: Besides, one is kept for ever for each so many hours.
            checkpoint_name: What their names begin with.
            step_counter: A variable with the number of the step, which checkpoints are then named by.
            checkpoint_interval: `save` saves if the step counter has come so far since the last one.
            init_fn: Called by `restore_or_initialize` if there is no checkpoint.

        Raises:
            ArgumentError: If an interval has no counter, or another argument is wrong.
        """
        if checkpoint_interval is not None and step_counter is None:
            raise ArgumentError("checkpoint_interval counts by step_counter. Received: step_counter=None. Pass it.")
        self.checkpoint = checkpoint
        self.directory = os.fspath(directory)
        self.checkpoint_interval = checkpoint_interval
        self._counter = step_counter
        self._init = init_fn
        self._last: int | None = None
        # TensorFlow's default of the same argument in v1.train.Saver: practically never.
        hours = 10000.0 if keep_checkpoint_every_n_hours is None else keep_checkpoint_every_n_hours
        self._store = CheckpointStore(self.directory, checkpoint_name, max_to_keep, hours)

    @property
    def checkpoints(self) -> list[str]:
        """The names of those that are kept, the oldest first."""
        state = get_checkpoint_state(self.directory)
        return [] if state is None else list(state.all_model_checkpoint_paths)

    @property
    def latest_checkpoint(self) -> str | None:
        """The name of the newest."""
        return latest_checkpoint(self.directory)

    def save(
        self, checkpoint_number: SizeLike = None, check_interval: bool = True, options: object = None
    ) -> str | None:
        """Saves, and removes what is too old.

        Args:
            checkpoint_number: What it is named by. Default: the step counter, or else how often was saved.
            check_interval: Whether `checkpoint_interval` counts.
            options: `CheckpointOptions`, which change no result.

        Returns:
            Its name; `None` if it is not yet time.
        """
        _check_options(options)
        step = None if self._counter is None else int(self._counter)
        interval = self.checkpoint_interval or 0
        if step is not None and check_interval and self._last is not None and step < self._last + interval:
            return None
        self._last = step
        counter = self.checkpoint.save_counter
        counter.assign(counter + 1)
        number = step if checkpoint_number is None else int(checkpoint_number)
        name = self.checkpoint.save_to(self._store, int(counter.value) if number is None else number)
        # TensorFlow's save returns when the files are there.
        self._store.wait()
        return name

    def restore_or_initialize(self) -> str | None:
        """Restores the newest checkpoint and returns its name; without one it calls `init_fn`."""
        newest = self.latest_checkpoint
        if newest is not None:
            self.checkpoint.restore(newest)
            self._last = None if self._counter is None else int(self._counter)
        elif self._init is not None:
            self._init()
        return newest


class CheckpointOptions:
    """How a checkpoint is written: none of these changes what is in it, so each is written at once, by this process.

    Source: tf.train.CheckpointOptions.
    """

    def __init__(
        self,
        experimental_io_device: str | None = None,
        experimental_enable_async_checkpoint: bool = False,
        experimental_write_callbacks: Sequence[Callable[..., Any]] | None = None,
        enable_async: bool = False,
    ) -> None:
        """Creates options.

        Raises:
            UnsupportedError: If there are callbacks of writing.
        """
        if experimental_write_callbacks:
            raise UnsupportedError(
                "A checkpoint is there when save() returns. Received: experimental_write_callbacks. Call them after it."
            )
        self.experimental_io_device = experimental_io_device
        self.experimental_enable_async_checkpoint = experimental_enable_async_checkpoint
        self.experimental_write_callbacks = experimental_write_callbacks
        self.enable_async = enable_async


def _check_options(options: object) -> None:
    if options is not None and not isinstance(options, CheckpointOptions):
        raise ArgumentError(f"options must be None or tf.train.CheckpointOptions. Received: {options!r}.")
