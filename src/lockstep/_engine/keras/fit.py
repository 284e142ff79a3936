"""`fit` of a model that belongs to a strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
from keras.src.backend import config
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils

from lockstep._engine.input.arrays import facts_of
from lockstep._engine.input.feed import Feed
from lockstep._engine.input.samples import Sample
from lockstep._engine.keras import agreement, programs, running
from lockstep._engine.keras.callbacks import callback_list
from lockstep._engine.keras.listening import BatchListener
from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.recovery import Progress, Recovery
from lockstep._engine.keras.state import TRAIN, ModelState
from lockstep._engine.step.protocol import Program
from lockstep._engine.step.steps_per_execution import Outputs
from lockstep.errors import Preempted


def fit(
    model: Any,
    owned: Ownership,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: Any = True,
    class_weight: Any = None,
    sample_weight: Any = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: Any = 1,
) -> Any:
    """Stands in for `keras.Model.fit`; all arguments as there, `batch_size` is the global one."""
    model._assert_compile_called("fit")
    epochs = running.capped(epochs, config.max_epochs(), "epochs")
    if validation_split and validation_data is None:
        parts: Any = array_slicing.train_validation_split((x, y, sample_weight), validation_split=validation_split)
        (x, y, sample_weight), validation_data = parts
    with running.guarded(owned, "fit"):
        source = running.source_for(
            owned,
            "fit",
            model,
            x,
            y=y,
            sample_weight=sample_weight,
            batch_size=batch_size,
            steps_per_epoch=steps_per_epoch,
            shuffle=shuffle,
            class_weight=class_weight,
        )
        running.build(model, source)
        program = programs.train_program(model, owned)
        feed = running.feed_of(source, program, owned, steps_per_epoch)
        validation = _Validation(
            model, validation_data, validation_batch_size or batch_size, validation_steps, validation_freq
        )
        called = callback_list(
            callbacks, model, owned.replicas.runtime, verbose, add_history=True, epochs=epochs, steps=feed.num_batches
        )
        facts = {"epochs": epochs, "class_weight": _as_json(class_weight)}
        _Fit(model, owned, program, feed, called, validation, facts).run(initial_epoch)
    return model.history


def _as_json(class_weight: dict[Any, Any] | None) -> dict[str, float] | None:
    return class_weight and {str(label): float(weight) for label, weight in class_weight.items()}


class _Fit:
    """The epochs of one call of `fit`; `facts` are arguments that all tasks must pass alike."""

    def __init__(
        self,
        model: Any,
        owned: Ownership,
        program: Program,
        feed: Feed,
        callbacks: Any,
        validation: _Validation,
        facts: dict[str, Any],
    ) -> None:
        self._model = model
        self._owned = owned
        self._runtime = owned.replicas.runtime
        self._program = program
        self._feed = feed
        self._callbacks = callbacks
        self._validation = validation
        self._epochs = facts["epochs"]
        self._facts = facts
        self._state = ModelState(model, owned, program, TRAIN)
        self._recovery = Recovery(model, self._state, feed, program, callbacks, self._runtime)
        self._recovery.validation = validation

    def run(self, initial_epoch: int) -> None:
        """Trains."""
        is_done = False
        try:
            self._model.stop_training = False
            with self._recovery.beginning():
                self._callbacks.on_train_begin()
            self._train(self._begin(self._model._initial_epoch or initial_epoch))
            is_done = True
        finally:
            self._recovery.finish(is_done)

    def _train(self, first: int) -> None:
        model = self._model
        logs: dict[str, Any] = {}
        finished = False
        try:
            for epoch in range(first, first if model.stop_training else self._epochs):
                logs = self._epoch(epoch)
                stops = running.stops(self._runtime, epoch, model)
                if stops:
                    self._settle(ends=True)
                    self._state.sync()
                self._recovery.on_epoch(epoch, stops)
                if stops:
                    break
            finished = True
        except Preempted:
            running.preempted(self._callbacks)
            raise
        finally:
            # A task that has failed alone must not wait for others to read averages that lie on all of them.
            may_read = finished or self._program.optimizer_sharding is None or self._runtime.is_alone
            if isinstance(model.optimizer, keras.optimizers.Optimizer) and self._epochs > 0 and may_read:
                model.optimizer.finalize_variable_values(model.trainable_weights)
            self._validation.close()
            if finished:
                self._runtime.release(logs)
                self._callbacks.on_train_end(logs=logs)

    def _begin(self, initial_epoch: int) -> int:
        facts = {**self._facts, "validation": self._validation.facts(), "backups": self._recovery.facts()}
        mine = [initial_epoch, self._recovery.word()]
        data = _Compared(self._feed, self._validation)
        first, word = agreement.begin_run(self._runtime, "fit", self._state, facts, data, mine)
        progress = self._recovery.resume(first, word)
        self._model.stop_training = progress.stopped
        return progress.epoch

    def _epoch(self, epoch: int) -> dict[str, Any]:
        self._model.reset_metrics()
        progress = self._recovery.begin_epoch(epoch)
        self._callbacks.on_epoch_begin(epoch)
        self._recovery.resume_epoch()
        agreement.begin_epoch(self._runtime, epoch, self._state, self._feed)
        if not progress.trained:
            progress = self._steps(epoch, progress)
        logs = dict(self._model._get_metrics_result_or_logs(progress.logs))
        logs.update(self._validation.run(epoch, self._callbacks))
        self._callbacks.on_epoch_end(epoch, logs)
        return logs

    def _steps(self, epoch: int, progress: Progress) -> Progress:
        """Trains on the batches of an epoch that are left."""
        recovery = self._recovery
        listener = _TrainListener(self._model, self._callbacks, self._owned, recovery)
        with self._state.attached():
            steps = running.drive(self._feed, self._program, self._state, listener, recovery.interrupted)
            listener.end()
            self._settle(ends=epoch == self._epochs - 1)
        self._state.together()  # Callbacks, and what comes after the training, may read on any worker.
        if steps + progress.batches == 0:
            running.run_dry(self._feed, epoch, self._model)
        recovery.trained(listener.logs)
        return recovery.progress

    def _settle(self, ends: bool) -> None:
        """Has the state hold what replicas came to by themselves."""
        self._state.give(self._program.synchronize(self._state.take(), ends))


@dataclass(frozen=True)
class _Compared:
    """Facts about the data of a `fit`, which tasks compare before the first batch."""

    feed: Feed
    validation: _Validation

    def facts(self) -> dict[str, Any]:
        """Returns what must be equal on all tasks, also of the validation data."""
        return {**self.feed.facts(), "validation": self.validation.data_facts()}

    def sample(self, number: int) -> Sample | None:
        """Returns a sample of the training data."""
        return self.feed.sample(number)


class _TrainListener(BatchListener):
    """Keras' callbacks for training batches as the loop's listener.

    Args:
        model: Whose callbacks.
        callbacks: A `keras.callbacks.CallbackList`.
        owned: Whose replicas take part.
        recovery: Knows at which batch of the epoch the loop starts, and saves.
    """

    def __init__(self, model: Any, callbacks: Any, owned: Ownership, recovery: Recovery) -> None:
        runtime = owned.replicas.runtime
        super().__init__("train", model, callbacks, runtime, owned.sync_point)
        self._runtime = runtime
        self._recovery = recovery
        self._first = self._told = recovery.progress.batches
        self._last = recovery.progress.logs

    def room(self, step: int) -> int:
        """Returns how many steps may run before callbacks have to be told, or something is to be saved."""
        step += self._first
        room, more = super().room(step), self._recovery.room(step)
        return room if more is None else max(1, min(room, more))

    def before(self, step: int, steps: int) -> None:
        """Tells the callbacks that a stride begins."""
        super().before(step + self._first, steps)

    def after(self, step: int, outputs: Outputs) -> bool:
        """Tells the callbacks of the end of a stride, and saves if it is time; returns whether to stop."""
        step += self._first
        self._recovery.check()
        self._recovery.passed(step + 1, outputs)
        stop = super().after(step, outputs)
        if self._begun is None and not stop:
            self._save()
        return stop

    def end(self) -> None:
        """Tells the callbacks of a stride that the data has cut short."""
        if self._begun is not None:
            super().end()
            self._save()

    def stops(self, step: int) -> bool:
        """Whether the training ends here; on all tasks at once."""
        del step
        if not self._runtime.stops_here(bool(self.model.stop_training)):
            return False
        self.model.stop_training = True
        return True

    def _save(self) -> None:
        before, self._told = self._told, self._recovery.progress.batches
        self._recovery.on_batches(before)


class _Validation:
    """The validation data of a `fit`, read again after each epoch that asks for it."""

    def __init__(self, model: Any, data: Any, batch_size: int | None, steps: int | None, frequency: Any) -> None:
        self._model = model
        self._data = None if data is None else data_adapter_utils.unpack_x_y_sample_weight(data)
        self._batch_size = batch_size
        self._steps = steps
        self._frequency = frequency
        # Where its data stand: to begin with, and before the evaluation that is under way.
        self.position: Any = None
        self._is_under_way = False
        self.close()

    def facts(self) -> dict[str, Any]:
        """What must be equal on all tasks."""
        return {"given": self._data is not None, "steps": self._steps, "frequency": self._frequency}

    def data_facts(self) -> dict[str, Any] | None:
        """Returns what must be equal on all tasks of the data, which are read later."""
        if self._data is None:
            return None
        x, y, sample_weight = self._data
        return facts_of(x, y=y, sample_weight=sample_weight, batch_size=self._batch_size)

    def run(self, epoch: int, callbacks: Any) -> dict[str, Any]:
        """Evaluates if this epoch is to be; returns the logs, each named "val_..."."""
        if self._data is None or not self._model._should_eval(epoch, self._frequency):
            return {}
        x, y, sample_weight = self._data
        self.position, self._is_under_way = self.saved(), True
        logs = self._model.evaluate(
            x=x,
            y=y,
            sample_weight=sample_weight,
            batch_size=self._batch_size,
            steps=self._steps,
            callbacks=callbacks,
            return_dict=True,
            _use_cached_eval_dataset=True,
            _position=self.position,
        )
        self._is_under_way = False
        return {f"val_{name}": value for name, value in logs.items()}

    def saved(self) -> Any:
        """Returns where the data stand, or `None` if they were not read yet; all tasks call it."""
        feed = self._model._eval_epoch_iterator
        return self.position if self._is_under_way or feed is None else feed.position()

    def close(self) -> None:
        """Forgets the data."""
        self._model._eval_epoch_iterator = None
